"""The assets of each source: a step per stage, and one body for all steps."""
