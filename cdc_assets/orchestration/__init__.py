"""Assets, checks, jobs, schedules and sensors of Dagster."""
