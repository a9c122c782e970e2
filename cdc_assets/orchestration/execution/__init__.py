"""The job `daily`, its executor, the Spark resource, progress and failures."""
