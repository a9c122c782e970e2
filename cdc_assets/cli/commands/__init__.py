"""The commands of `cdc-assets`, a module each: options, help and output.

Every `--help` imports these modules, so commands import Spark, Dagster and the configuration inside
their functions.
"""
