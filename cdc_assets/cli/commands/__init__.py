"""The commands of `cdc-assets`, a module each: its options, its help and what it prints.

These modules are imported for every `--help`, so that what a command works with (Spark, Dagster,
the configuration) is imported inside its function.
"""
