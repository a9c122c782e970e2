"""The assets of each source: one step a stage, and one body for all steps."""
