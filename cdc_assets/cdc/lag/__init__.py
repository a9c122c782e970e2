"""The lag of changes: measured, kept by day, judged and shown."""
