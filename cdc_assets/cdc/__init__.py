"""The pure Spark floor: change events in, days of tables out.

Nothing below here imports Dagster, so every stage can be called from a notebook:
a :class:`~cdc_assets.cdc.config.Config`, a ``SparkSession`` and a
:class:`~cdc_assets.cdc.lake.catalog.Lake` are all that a stage needs.
"""
