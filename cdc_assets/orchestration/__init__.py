"""Assets, checks, jobs and all else that Dagster runs."""
