"""Schema registries: fetch and cache the schemas of records, decode the records in Spark."""
