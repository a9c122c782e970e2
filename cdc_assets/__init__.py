"""cdc-assets: change-data-capture events as daily Iceberg tables, seen in Dagster."""

__version__ = "0.1.0"
