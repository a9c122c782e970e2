"""Files that a sink left are recognised by their names, and what is missing is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.landing.recognition import recognise
from cdc_assets.cli.app import app

TOPIC = "shop.public.t"
DAY = "year=2026/month=03/day=01"
VALUE = json.dumps({"op": "c", "after": {"id": 1}})


def put(root: Path, *paths: str, text: str = VALUE) -> Path:
    for path in paths:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        data = f"{text}\n".encode()
        place.write_bytes(gzip.compress(data) if path.endswith(".gz") else data)
    return root


@pytest.mark.parametrize(
    ("paths", "text", "landing", "says", "lacks"),
    [
        (
            [
                f"{TOPIC}/{DAY}/hour=03/{TOPIC}+0+0000000001.json",
                f"{TOPIC}/{DAY}/hour=03/{TOPIC}+0+0000000001.keys.json",
                f"{TOPIC}/tombstone/{TOPIC}+0+0000000002.keys.json",
                f"u/{DAY.replace('01', '02')}/hour=00/u+1+0000000001.json",
                "+tmp/x",
            ],
            VALUE,
            {"layout": "confluent"},
            "hourly, JSON, with keys, 2 topics, 2 files, 2026-03-01 to 2026-03-02",
            [],
        ),
        (
            [f"{TOPIC}/partition=0/{TOPIC}+0+0000000001.avro"],
            VALUE,
            {"layout": "confluent", "day": "value"},
            "Avro, without keys, 1 topic, 1 file",
            ["no path names a day", "store.kafka.keys=true"],
        ),
        (
            [f"ns/{TOPIC}/0/2026/03/01/00/05/00.avro"],
            VALUE,
            {"layout": "eventhubs"},
            "Azure Event Hubs Capture, 1 topic, 1 file, 2026-03-01 to 2026-03-01",
            [],
        ),
        (
            [f"2026-03-01/{TOPIC}-0-7.jsonl.gz"],
            json.dumps({"key": {"id": 1}, "value": {}, "offset": 7}),
            {"layout": "aiven", "path": "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*"},
            "Aiven's sinks, JSON lines, 1 topic",
            [],
        ),
        (
            [f"{TOPIC}-0-7.gz"],
            "a2V5,dmFsdWU=,7,1772360000000",
            {
                "layout": "aiven",
                "day": "timestamp",
                "fields": ["key", "value", "offset", "timestamp"],
            },
            "CSV of 4 fields",
            ["no path names a day", "format.output.fields, in order"],
        ),
        (
            [f"{TOPIC}-0-7.gz"],
            "dmFsdWU=",
            {"layout": "aiven", "day": "value", "fields": ["value"]},
            "CSV of 1 field,",
            ["no path names a day", "in order", "keys are not stored"],
        ),
        (
            ["2026/03/01/09/stream-1-2026-03-01-09-00-01-uuid"],
            VALUE,
            {"path": "{yyyy}/{MM}/{dd}/{HH}/*", "record": "value", "topic": "shop"},
            "values alone by hour",
            ["values have no topic"],
        ),
    ],
)
def test_a_sink_is_told_by_the_names_of_its_files(
    tmp_path: Path,
    paths: list[str],
    text: str,
    landing: dict[str, Any],
    says: str,
    lacks: list[str],
) -> None:
    found = recognise(str(put(tmp_path, *paths, text=text)), "shop")
    assert found is not None
    assert found.landing == landing
    assert says in found.text
    assert len(found.lacks) == len(lacks)
    for lack, said in zip(found.lacks, lacks, strict=True):
        assert said in lack


@pytest.mark.parametrize(
    "path", ["2026-03-01/records.jsonl", "2026-03-01/t-0-1.jsonl", "some/thing.txt"]
)
def test_other_files_are_no_sinks(tmp_path: Path, path: str) -> None:
    line = json.dumps({"topic": "t", "partition": 0, "offset": 1, "payload": "x"})
    assert recognise(str(put(tmp_path, path, text=line)), "shop") is None


def test_init_writes_what_it_found(tmp_path: Path) -> None:
    files = put(tmp_path / "topics", f"{TOPIC}/{DAY}/{TOPIC}+0+0000000001.json")
    given = ["init", str(tmp_path / "project"), "--source", "shop", "--landing", str(files)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    assert "found files of Kafka Connect's sinks" in done.output
    assert "store.kafka.keys=true" in done.output
    written = tmp_path / "project" / "cdc.yaml"
    landing = yaml.safe_load(written.read_text(encoding="utf-8"))["sources"]["shop"]["landing"]
    assert landing == {"files": str(files), "layout": "confluent"}
    assert str(load_config(str(written)).start_date) == "2026-03-01"
    assert load_config(str(written)).source("shop").landing.file_layout is not None


def test_init_says_what_it_saw_where_nothing_is_known(tmp_path: Path) -> None:
    files = put(tmp_path / "other", "a/b.txt")
    given = ["init", str(tmp_path / "project"), "--landing", str(files)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code != 0
    assert "a/b.txt" in done.output
    assert not (tmp_path / "project").exists()


def test_init_says_what_url_it_can_not_read(tmp_path: Path) -> None:
    given = ["init", str(tmp_path / "project"), "--landing", "nothing://x"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2, done.output
    assert "can't be listed" in " ".join(done.output.replace("│", " ").split())
