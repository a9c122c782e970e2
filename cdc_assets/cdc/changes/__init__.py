"""landing → changes, control and quarantine."""
