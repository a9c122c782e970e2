"""What is wrong about a landing is said when the configuration is read, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.errors import ConfigError
from cdc_assets_tests import lakes


@pytest.mark.parametrize(
    ("landing", "says"),
    [
        (
            {"files": "x", "kafka": {"bootstrap_servers": "b", "topics": ["t"]}},
            "got files and kafka of files, kafka and table",
        ),
        ({"kafka": {"bootstrap_servers": "b"}}, "got neither of topics and topic_pattern"),
        ({"kafka": {"bootstrap_servers": "b", "topic_pattern": "("}}, "not a regular expression"),
        (
            {"kafka": {"bootstrap_servers": "b", "topics": ["t"], "options": {"sasl.x": 1}}},
            "write it as kafka.sasl.x",
        ),
        (
            {
                "kafka": {
                    "bootstrap_servers": "b",
                    "topics": ["t"],
                    "options": {"kafka.isolation.level": "read_uncommitted"},
                }
            },
            "never read",
        ),
    ],
)
def test_a_wrong_kafka_landing_is_refused(
    landing: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        lakes.config_of({"shop": {"format": "debezium", "landing": landing}}, tmp_path)


@pytest.mark.parametrize(
    ("landing", "message"),
    [
        ({"table": "kafka_raw"}, "landing.table: got 'kafka_raw'; expected [catalog.]namespace"),
        ({"table": {"path": "x"}}, "landing.table.format: is missing"),
        ({"table": {"path": "x", "format": "orc"}}, "landing.table.format: got 'orc'; expected"),
        ({"table": 7}, "landing.table: got 7; expected a mapping"),
        ({"table": "a.b", "columns": {"time": "x"}}, "columns: time: expected one of topic, part"),
        ({"files": "x", "columns": {"key": "x"}}, "columns: it belongs to table; files has none"),
        ({"files": "x", "table": "a.b"}, "landing: got files and table of files, kafka and table"),
        ({"table": "a.b", "layout": "redpanda", "columns": {"key": "k"}}, "columns of fixed names"),
        ({"table": {"path": "x", "format": "delta"}, "layout": "redpanda"}, "are in a catalog"),
    ],
)
def test_what_is_wrong_about_a_table_is_said_with_its_place(
    tmp_path: Path, landing: dict[str, Any], message: str
) -> None:
    source = {"format": "debezium", "landing": landing}
    with pytest.raises(ConfigError) as error:
        lakes.config_of({"shop": source}, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("landing", "message"),
    [
        ({"layout": "redpanda"}, "landing: layout: redpanda belongs to table; of files it is one"),
        ({"layout": "parquet"}, "landing.layout: got 'parquet'; expected 'kafka', "),
        ({"record": "value"}, "record: it belongs to path, or to the layout of a sink"),
        ({"layout": "daily", "path": "x/*"}, "path: it belongs to a layout of sinks"),
        ({"layout": "confluent", "fields": ["value"]}, "fields: it belongs to layout: aiven"),
        ({"layout": "confluent", "record": "line"}, "record: layout confluent says it"),
        ({"layout": "eventhubs", "tombstones": "modified"}, "tombstones: it belongs to layout: co"),
        ({"path": "{day}/*"}, "path: got '{day}'; expected {topic}, {partition}"),
        ({"path": "a/{topic}.json"}, "path: no path names its day ({yyyy}, {MM}, {dd}). Let the"),
        ({"layout": "aiven"}, "path: no path names its day"),
        ({"path": "{yyyy}{MM}{dd}/*", "record": "value"}, "topic: no path says it ({topic})"),
        ({"layout": "aiven", "day": "modified", "fields": ["key"]}, "fields: expected value"),
        ({"layout": "aiven", "day": "modified", "fields": ["headers"]}, "fields[0]: got 'headers'"),
    ],
)
def test_what_is_wrong_about_files_of_sinks_is_said_with_its_place(
    tmp_path: Path, landing: dict[str, Any], message: str
) -> None:
    source = {"format": "debezium", "landing": {"files": "x", **landing}}
    with pytest.raises(ConfigError) as error:
        lakes.config_of({"shop": source}, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("landing", "message"),
    [
        (
            {"table": "a.b", "layout": "confluent"},
            "layout: confluent is of files; those of a table",
        ),
        ({"table": "a.b", "path": "x/*"}, "path: it belongs to files; table has none"),
        (
            {"kafka": {"bootstrap_servers": "b", "topics": ["t"]}, "layout": "daily"},
            "layout: it belongs to files and table; kafka has none",
        ),
    ],
)
def test_settings_of_files_are_refused_elsewhere(
    tmp_path: Path, landing: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        lakes.config_of({"shop": {"format": "debezium", "landing": landing}}, tmp_path)
    assert message in str(error.value)
