"""Runs of the command line, and what Dagster has recorded of runs."""
