"""The committed sample days: every record and every table as the reference model reads them."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import DataFrame

from cdc_assets.cdc.changes.facts import ORDER, facts_of, read_facts
from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import Reports, land, make_changes
from cdc_assets_tests.model import Classified, Landed, Record
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.registries import in_json

SOURCES: dict[str, Any] = yaml.safe_load((REPOSITORY / "cdc.yaml").read_text("utf-8"))["sources"]
DAYS = [date(2026, 11, 1) + timedelta(days=n) for n in range(6)]
TABLES = [(source, table) for source, config in SOURCES.items() for table in config["tables"]]

pytestmark = pytest.mark.slow


# -- landed files, read without the package ------------------------------------------------------


def read_landing(folder: Path) -> Landed:
    """Day → its records, file by file in the order of their names."""
    return {
        date.fromisoformat(day.name): [
            record for file in sorted(day.iterdir()) for record in _read_file(file)
        ]
        for day in sorted(folder.iterdir())
    }


def _read_file(file: Path) -> list[Record]:
    if file.suffix == ".parquet":
        return [_of_parquet(row) for row in pq.read_table(file).to_pylist()]
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [_of_line(line) for line in data.split(b"\n") if line.strip()]


def _of_parquet(row: dict[str, Any]) -> Record:
    headers = tuple((h["key"], h["value"]) for h in row.get("headers") or ())
    timestamp = _ms(row["timestamp"])
    place = (row["topic"], row["partition"], row["offset"])
    return Record(*place, timestamp, row["key"], row["value"], headers)


def _of_line(line: bytes) -> Record:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    names = ("topic", "partition", "offset")
    if not isinstance(fields, dict) or any(fields.get(name) is None for name in names):
        return Record(None, None, None, None, None, line, malformed_line=True)
    value = "payload" if "payload" in fields else "value"
    return Record(
        *(fields[name] for name in names),
        fields["ts"] if "ts" in fields else _ms(datetime.fromisoformat(_zoned(fields))),
        _bytes(fields, "key"),
        _bytes(fields, value),
        _headers(fields.get("headers") or []),
    )


def _zoned(fields: dict[str, Any]) -> str:
    return str(fields["timestamp"]).replace("Z", "+00:00")


def _ms(moment: datetime) -> int:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (moment - epoch) // timedelta(milliseconds=1)


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    for coded in (f"{name}_base64", "value_base64" if name == "payload" else None):
        if coded and fields.get(coded) is not None:
            return base64.b64decode(fields[coded])
    text = fields.get(name)
    return None if text is None else str(text).encode()


def _headers(headers: list[Any]) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (
        [(h["key"], h["value"]) for h in headers]
        if headers and isinstance(headers[0], dict)
        else list(zip(headers[::2], headers[1::2], strict=True))
    )
    return tuple((name, None if value is None else value.encode()) for name, value in pairs)


# -- the sample, run once ------------------------------------------------------------------------


@dataclass
class Sample:
    """One source of the sample: what the lake holds, and what the model says."""

    lake: Lake
    name: str
    reports: Reports
    landed: Landed
    classified: dict[date, list[Classified]]
    tables: dict[date, dict[str, list[dict[str, Any]]]]
    lag: dict[date, list[dict[str, Any]]]
    calls: int  # from Python to the JVM, of the changes stage of all days


def _anchored(landing: dict[str, Any]) -> dict[str, Any]:
    """A landing whose folders do not depend on where `cdc.yaml` is."""
    paths = {name: str(REPOSITORY / place) for name, place in landing.items() if name == "files"}
    inner = {name: _anchored(part) for name, part in landing.items() if isinstance(part, dict)}
    return {**landing, **paths, **inner}


def landed_of(landing: dict[str, Any]) -> Landed:
    """All days of a source; what was written in Avro is decoded, as the model reads JSON."""
    landed = {**{day: [] for day in DAYS}, **read_landing(REPOSITORY / landing["files"])}
    if "registry" not in landing:
        return landed
    folder = REPOSITORY / landing["registry"]["files"]
    return {day: [in_json(r, folder) for r in records] for day, records in landed.items()}


@pytest.fixture(scope="module")
def samples(lake_of: LakeOf) -> dict[str, Sample]:
    sources = {
        name: {**config, "landing": _anchored(config["landing"])}
        for name, config in SOURCES.items()
    }
    lake = lake_of({f"sample_{name}": config for name, config in sources.items()}, DAYS[0])
    found = {}
    for name, config in SOURCES.items():
        landed = landed_of(config["landing"])
        land(lake, f"sample_{name}", DAYS)
        with lakes.counted_calls() as calls:
            make_changes(lake, f"sample_{name}", DAYS)
        found[name] = Sample(
            lake,
            f"sample_{name}",
            lakes.run_all(lake, f"sample_{name}", DAYS, lag=True),
            landed,
            model.classify(config, landed),
            model.tables(config, landed),
            model.lag(config, landed),
            calls.total(),
        )
    return found


# -- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_every_record_reaches_the_destination_that_the_model_says(
    samples: dict[str, Sample], source: str
) -> None:
    sample = samples[source]
    got = lakes.destinations_read(sample.lake, sample.name)
    lakes.assert_same_rows(got, lakes.destinations_expected(sample.classified), source)
    landed = lakes.stage_rows(sample.lake, sample.name, "landing")
    assert len(landed) == sum(map(len, sample.landed.values()))


@pytest.mark.parametrize("source", SOURCES)
def test_reasons_of_each_day_are_counted_as_the_model_counts_them(
    samples: dict[str, Sample], source: str
) -> None:
    sample = samples[source]
    figures = day_figures(sample.lake, sample.name, DAYS)
    for day, of_day in sample.classified.items():
        reasons = Counter(found.reason for found in of_day if found.reason)
        assert figures[day].quarantine == dict(reasons), day
        control = Counter(found.op for found in of_day if found.destination == "control")
        assert figures[day].control == dict(control), day
        assert figures[day].landed == len(sample.landed[day]), day


@pytest.mark.parametrize("source", SOURCES)
def test_every_change_is_read_as_the_model_reads_it(
    samples: dict[str, Sample], source: str
) -> None:
    sample = samples[source]
    got = lakes.changes_read(sample.lake, sample.name)
    lakes.assert_same_rows(got, lakes.changes_expected(sample.classified), source)


@pytest.mark.parametrize("source", SOURCES)
def test_the_facts_of_the_days_are_those_of_their_rows(
    samples: dict[str, Sample], source: str
) -> None:
    lake, name = samples[source].lake, samples[source].name
    of_changes = ("changes", ORDER)
    kept = [f for f in read_facts(lake, name, DAYS) if f.destination in of_changes]
    # A Canal message has many rows, which are ordered by their place in it.
    is_canal = SOURCES[source]["format"] == "canal"
    row_number = "element_at(position, -1) DIV 2" if is_canal else "NULL"
    rows = lake.stage_days(name, "changes", DAYS).selectExpr(
        "*",
        "'changes' AS destination",
        "CAST(NULL AS string) AS reason",
        f"CAST({row_number} AS int) AS row_number",
    )
    counted = facts_of(rows, lake.config.source(name), lake.config.timezone).collect()
    assert kept
    assert sorted(map(str, kept)) == sorted(map(str, counted))


@pytest.mark.parametrize("source", SOURCES)
def test_the_changes_of_six_days_take_few_calls_to_the_jvm(
    samples: dict[str, Sample], source: str
) -> None:
    """Planning is what small days cost; a call takes 0.1 to 1 ms."""
    assert samples[source].calls <= 2_000


# -- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "table"), TABLES)
def test_every_day_of_a_table_is_what_the_model_says(
    samples: dict[str, Sample], source: str, table: str
) -> None:
    sample = samples[source]
    faults = []
    for day in DAYS:
        got = lakes.rows_of(sample.lake, sample.name, table, day)
        difference = lakes.difference_of(got, sample.tables[day][table])
        if difference:
            faults.append(f"{day}\n{difference}")
        assert sample.reports[table, day].rows == len(got)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(("source", "table"), TABLES)
def test_main_is_the_last_day(samples: dict[str, Sample], source: str, table: str) -> None:
    sample = samples[source]
    refs = lakes.refs_of(sample.lake, sample.name, table)
    assert refs["main"] == refs[str(DAYS[-1])]
    assert {name for name in refs if name.startswith("2026")} == {str(day) for day in DAYS}


# -- lag -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_lag_is_what_the_model_measures(samples: dict[str, Sample], source: str) -> None:
    sample = samples[source]
    got = lakes.lag_read(sample.lake, sample.name)
    lakes.assert_same_rows(got, lakes.lag_expected(sample.lag), source)


def test_reading_a_table_by_its_tag_shows_the_own_columns_of_the_lake(
    samples: dict[str, Sample],
) -> None:
    sample = samples["inventory"]
    frame: DataFrame = lakes.table_at(sample.lake, sample.name, "public.orders", DAYS[-1])
    assert frame.columns[-3:] == ["_cdc_position", "_cdc_source_ts_ms", "_cdc_landing_date"]
    rows = lakes.plain(frame)
    assert all(row["_cdc_position"] for row in rows)
    assert {row["_cdc_landing_date"] for row in rows} <= set(DAYS)
