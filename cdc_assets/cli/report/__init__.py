"""`cdc-assets report`: the figures of days as one HTML page."""
