"""Runs Spark's AUTO CDC over days of change events; `scripts/peers.sh` makes its environment.

`python auto_cdc.py FOLDER`: FOLDER has `day-*.json`, a line an event with `story`, `id`, `v`, `w`,
`op` and `seq`. Each day is one run of a pipeline, incremental, in one session. Prints a line of
JSON: the seconds of each day, and the rows of the SCD type 2 table at the end, or the error.

The target is in Spark's own test catalog: no table format with a release for this Spark has what
AUTO CDC writes with (Iceberg's newest is for Spark 4.1).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.pipelines import cli
from pyspark.sql import SparkSession

CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
DEFINITION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession


@dp.temporary_view
def events():
    schema = "story STRING, id INT, v STRING, w STRING, op STRING, seq BIGINT"
    return SparkSession.active().readStream.schema(schema).json({folder!r})


dp.create_streaming_table("rows")
dp.create_auto_cdc_flow(
    target="rows",
    source="events",
    keys=["story", "id"],
    sequence_by="seq",
    apply_as_deletes="op = 'd'",
    except_column_list=["op", "seq"],
    stored_as_scd_type=2,
)
"""
SPEC = """
name: peers
storage: {folder}/storage
catalog: lake
database: db
libraries:
  - glob:
      include: definitions/**
"""


def run(folder: Path) -> dict[str, Any]:
    """What the days of a folder come to."""
    landed = folder / "events"
    landed.mkdir()
    (folder / "definitions").mkdir()
    (folder / "definitions" / "rows.py").write_text(DEFINITION.format(folder=landed.as_uri()))
    spec = folder / "spark-pipeline.yml"
    spec.write_text(SPEC.format(folder=folder.as_uri()))
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.sql.catalog.lake", CATALOG)
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    stop, type(spark).stop = type(spark).stop, lambda _: None  # the command stops its session
    seconds = []
    try:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        for day in sorted(folder.glob("day-*.json")):
            shutil.copy(day, landed)
            began = time.monotonic()
            cli.run(spec, [], False, [], False)
            seconds.append(round(time.monotonic() - began, 2))
        rows = spark.sql("SELECT story, id, v, w, __START_AT s, __END_AT e FROM lake.db.rows")
        return {"seconds": seconds, "rows": [row.asDict() for row in rows.collect()]}
    except Exception as error:
        return {"seconds": seconds, "error": f"{type(error).__name__}: {error}"}
    finally:
        stop(spark)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]).resolve())), flush=True)
