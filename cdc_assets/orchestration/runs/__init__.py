"""Runs of the command line, and records of runs in Dagster."""
