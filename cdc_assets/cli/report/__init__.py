"""`cdc-assets report`: figures of days as one HTML page."""
