"""Files of sinks in an object store: a real server of S3, and the settings that the docs show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from pyarrow import fs

from cdc_assets.cdc.config import Config, load_config
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import own_table, state_table
from cdc_assets.cdc.landing.sink_files import SinkFolder
from cdc_assets.cdc.landing.sink_landing import SinkLanding
from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets.orchestration.automation.sensors import days_to_request
from cdc_assets_tests.cdc.landing.test_sink_landing import (
    CONFLUENT,
    CUSTOMERS,
    DAY_1,
    DAY_2,
    TOPIC,
    Bucket,
    event,
    named,
)
from cdc_assets_tests.e2e.stack import ObjectStore
from cdc_assets_tests.lakes import config_of
from cdc_assets_tests.paths import REPOSITORY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.sinks,
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A server with a bucket `lake`; this process and those that it starts know where it is."""
    with ObjectStore(tmp_path / "store") as running:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        running.client().create_dir("lake")
        yield running


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A local folder; `upload` copies its files into the bucket."""
    return Bucket(tmp_path)


def upload(store: ObjectStore, bucket: Bucket, to: str = "lake/topics") -> None:
    """Copy the files that the bucket does not have yet."""
    client = store.client()
    for file in bucket.root.rglob("*"):
        place = f"{to}/{file.relative_to(bucket.root)}"
        if file.is_file() and client.get_file_info(place).type == fs.FileType.NotFound:
            # By default what has a name that ends with .gz would be compressed once more.
            with client.open_output_stream(place, compression=None) as out:
                out.write(file.read_bytes())


def source(files: str) -> dict[str, Any]:
    return {"format": "debezium", "landing": {"files": files, **CONFLUENT}, "tables": CUSTOMERS}


def test_a_day_asks_for_its_own_folders_alone(
    store: ObjectStore, bucket: Bucket, tmp_path: Path
) -> None:
    topics = (TOPIC, "shop.public.orders")
    for n in range(20):
        for topic in topics:
            bucket.write(DAY_1 + timedelta(days=n), n, event(1), topic=topic)
    upload(store, bucket)
    config = config_of({"shop": source("s3://lake/topics")}, tmp_path / "warehouse", DAY_1)
    before = len(store.requests())
    (found,) = SinkFolder(config, "shop").list_days([DAY_2])
    assert [(file.path, file.keys) for file in found.found] == [
        (named(DAY_2, 1, ".json", topic), named(DAY_2, 1, ".keys.json", topic)) for topic in topics
    ]
    asked = [path for what, path in store.requests()[before:] if what == "ListObjectsV2"]
    assert sorted(path.partition("prefix=")[2].partition("&")[0] for path in asked) == [
        "topics/",  # is it there?
        "topics/",  # which topics has it?
        *(f"topics/{topic}/year=2026/month=03/day=02/" for topic in topics),
    ]


def documented_settings() -> dict[str, str]:
    """The settings of Spark in the docs, those for a store that is not AWS's among them."""
    page = (REPOSITORY / "docs" / "landings.md").read_text("utf-8")
    section = page.partition("## Files in S3")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return {name: value for text in blocks for name, value in yaml.safe_load(text)["spark"].items()}


def test_the_documented_module_for_s3_is_of_the_hadoop_that_spark_brings() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = jar.stem.removeprefix("hadoop-client-api-")
    assert f"hadoop-aws:{version}," in documented_settings()["spark.jars.packages"]


def rows(config: Config, source: str, table: str) -> list[dict[str, Any]]:
    is_own = table == "landing"
    place = own_table(source, table) if is_own else state_table(config, source, table)
    found: list[dict[str, Any]] = open_table(config, place).scan().to_arrow().to_pylist()
    return sorted(found, key=repr)


def run(config: Path, fails: bool = False) -> str:
    """Make both days in a process of its own, whose Spark has the jars; what it said."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CDC_")}
    days = ["--from", str(DAY_1), "--to", str(DAY_2)]
    done = subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", "run", *days, "--config", str(config)],
        env=environment | {"DAGSTER_HOME": str(config.parent)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == (1 if fails else 0), done.stdout + done.stderr
    return done.stderr


def test_days_land_from_a_bucket_as_from_a_folder_and_follow_its_files(
    store: ObjectStore, bucket: Bucket, tmp_path: Path
) -> None:
    file = bucket.write(DAY_1, 40, event(1), event(2, at=1))
    upload(store, bucket, "lake/kept")
    # Names that are no URL as they stand, in the folder of a field's value.
    beside = f"{file.parent.relative_to(bucket.root)}/till=a%2Fb c+d/{TOPIC}+1+0000000007"
    bucket.put(f"{beside}.json.gz", event(3, at=2), event(1, "b", "u", at=3), zipped=True)
    bucket.put(f"{beside}.keys.json.gz", {"id": 3}, {"id": 1}, zipped=True)
    bucket.write(DAY_2, 42, event(2, op="d", at=4), event(4, at=5))
    for unread in (f"+tmp/{named(DAY_1, 90, '.json')}", named(DAY_1, 90, ".index")):
        bucket.put(unread, event(9))
    upload(store, bucket)
    raw = {
        "lake": {"warehouse": str(tmp_path / "warehouse")},
        "spark": {**documented_settings(), "master": "local[1]", "memory": "1g", **SHORT_RUN},
        "start_date": DAY_1,
        "sources": {
            "bucket": source("s3://lake/topics"),
            "folder": source(str(bucket.root)),
            "kept": source("s3a://lake/kept"),
        },
    }
    file_of_config = tmp_path / "cdc.yaml"
    file_of_config.write_text(yaml.safe_dump(raw))
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    config = load_config(file_of_config)
    landing = SinkLanding(config, "bucket")
    in_a_while = time.time() + 3600  # files that were written just now are not new for long

    run(file_of_config)
    landed = rows(config, "bucket", "landing")
    assert landed == rows(config, "folder", "landing")
    assert sorted((row["landing_date"], row["partition"], row["offset"]) for row in landed) == [
        (DAY_1, 0, 40), (DAY_1, 0, 41), (DAY_1, 1, 7), (DAY_1, 1, 8), (DAY_2, 0, 42), (DAY_2, 0, 43)
    ]  # fmt: skip
    customers = rows(config, "bucket", "public.customers")
    assert customers == rows(config, "folder", "public.customers")
    assert sorted((row["id"], row["v"]) for row in customers) == [(1, "b"), (3, "a"), (4, "a")]
    assert len(rows(config, "kept", "landing")) == 2
    read = [path for what, path in store.requests() if what == "GetObject"]
    assert read
    assert len(read) == len(set(read)), "each file is asked for once"
    assert not any("+90" in path for path in read)
    assert days_to_request(landing, in_a_while) is None

    bucket.write(DAY_1, 44, event(5, at=6))
    upload(store, bucket)
    requested = days_to_request(landing, in_a_while)
    assert requested is not None
    assert requested.changed == (DAY_1,)
    for gone in (file.name, file.name.replace(".json", ".keys.json")):
        store.client().delete_file(f"lake/kept/{file.parent.relative_to(bucket.root)}/{gone}")
    said = run(file_of_config, fails=True)
    assert days_to_request(landing, in_a_while) is None
    customers = rows(config, "bucket", "public.customers")
    assert sorted(row["id"] for row in customers) == [1, 3, 4, 5]
    name = re.escape(str(file.relative_to(bucket.root)))
    assert re.search(rf"files in s3a://lake/kept no longer .*{name}: 2 landed, none left", said)
    assert len(rows(config, "kept", "landing")) == 2
