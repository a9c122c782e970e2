"""The lag of changes: measurement, daily rows, check and charts."""
