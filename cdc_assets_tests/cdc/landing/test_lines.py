"""Landing rows as the lines that land as them again; that they do is tested with the command."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.landing import lines
from cdc_assets.cdc.landing.lines import LandedRecord, landed_line, new_file, write_lines

DAY = date(2026, 11, 4)
NOON_US = 1_793_793_600_000_000
RECORD = LandedRecord(DAY, "shop.orders", 2, 7, NOON_US, 0, b'{"id":1}', b"{}", file="part.jsonl")


def line_of(**changes: Any) -> dict[str, Any]:
    line = landed_line(replace(RECORD, **changes))
    assert line is not None
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_has_the_names_of_a_landed_line() -> None:
    assert line_of() == {
        "topic": "shop.orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_793_793_600_000,
        "timestampType": 0,
        "key": '{"id":1}',
        "value": "{}",
        "headers": None,
    }


def test_null_empty_text_and_bytes_differ() -> None:
    assert line_of(key=None, value=b"") | {"key": None, "value": ""} == line_of(key=None, value=b"")
    bytes_line = line_of(key=b"\xff", value=b"\x00\x80")
    assert (bytes_line["key_base64"], bytes_line["value_base64"]) == ("/w==", "AIA=")
    assert not {"key", "value"} & set(bytes_line)
    headers = [("a", b""), ("a", None), ("b", b"\xff"), (None, b"t")]
    assert line_of(headers=headers)["headers"] == [
        {"key": "a", "value": ""},
        {"key": "a", "value": None},
        {"key": "b", "value_base64": "/w=="},
        {"key": None, "value": "t"},
    ]


@pytest.mark.parametrize(
    ("micros", "sent"),
    [
        (None, None),
        (0, 0),
        (NOON_US + 500_000, 1_793_793_600_500),
        (NOON_US + 1, "2026-11-04T12:00:00.000001Z"),
        (-1_000, "1969-12-31T23:59:59.999000Z"),
        (-70_000_000_000_000_000, "-0249-10-15T19:33:20.000000Z"),
    ],
)
def test_a_timestamp_is_in_ms_or_a_text_that_says_the_same(
    micros: int | None, sent: int | str | None
) -> None:
    assert line_of(timestamp_us=micros)["timestamp"] == sent


def test_a_line_has_no_character_that_a_terminal_acts_on_and_means_the_same() -> None:
    hostile = "\x1b[2J\x00\x07\x9b31m\u202edlrow\u2028\u200b\U000e0041 [red]é漢😀\r\n"
    line = landed_line(replace(RECORD, value=hostile.encode(), topic=hostile))
    assert line is not None
    assert line.decode().isprintable()
    assert (json.loads(line)["value"], json.loads(line)["topic"]) == (hostile, hostile)
    assert "é漢😀" in line.decode()


def test_more_members_stand_behind_the_record() -> None:
    line = landed_line(RECORD, quarantined={"reason": "malformed_json"})
    assert line is not None
    assert json.loads(line) == {**line_of(), "quarantined": {"reason": "malformed_json"}}


NO_RECORD = LandedRecord(DAY, None, None, None, None, None, None, b"\xef\xbb\xbf{no\xff\r", ())


def test_a_line_that_is_no_record_is_itself() -> None:
    assert landed_line(replace(NO_RECORD, file="part.jsonl.gz")) == NO_RECORD.value


def test_what_had_no_place_in_a_parquet_file_becomes_a_line_without_one() -> None:
    line = landed_line(replace(NO_RECORD, file="part.parquet", value=b"{}\n"))
    assert line is not None
    assert b"\n" not in line
    assert json.loads(line) == {
        **dict.fromkeys(("topic", "partition", "offset", "timestamp", "timestampType", "key")),
        "value": "{}\n",
        "headers": None,
    }


def test_what_is_too_long_for_a_line_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_TEXT_LIMIT", 100)
    assert landed_line(replace(RECORD, value=b"x" * 100)) is not None
    assert landed_line(replace(RECORD, value=b"x" * 101)) is None
    assert landed_line(replace(RECORD, value=b"\xff" * 76)) is None, "104 characters of base64"
    assert landed_line(replace(RECORD, value="😀".encode() * 50)) is not None
    assert landed_line(replace(RECORD, value="😀".encode() * 51)) is None, "102 of UTF-16"


def test_a_byte_order_mark_is_not_at_the_beginning_of_a_file() -> None:
    out = io.BytesIO()
    assert write_lines([b"\xef\xbb\xbfa", b"b"], out) == 2
    assert out.getvalue() == b"\n\xef\xbb\xbfa\nb\n"
    assert write_lines([], io.BytesIO()) == 0


def _write(file: Path, meanwhile: Callable[[], int]) -> None:
    with new_file(file) as out:
        out.write(b"ours")
        meanwhile()


def test_a_new_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    with new_file(file) as out:
        out.write(b"all")
        assert [path.name[0] for path in tmp_path.iterdir()] == ["."], "no landed file yet"
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]
    assert file.read_bytes() == b"all"
    with pytest.raises(ZeroDivisionError):
        _write(tmp_path / "other.jsonl", lambda: 1 // 0)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("no links here")

    if not has_links:
        monkeypatch.setattr("os.link", no_links)
    with new_file(tmp_path / "new.jsonl") as out:
        out.write(b"new")
    assert (tmp_path / "new.jsonl").read_bytes() == b"new"
    file = tmp_path / "bad.jsonl"
    with pytest.raises(FileExistsError):
        _write(file, lambda: file.write_bytes(b"of another, meanwhile"))
    assert file.read_bytes() == b"of another, meanwhile"
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        _write(tmp_path / "link.jsonl", lambda: 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.jsonl",
        "link.jsonl",
        "new.jsonl",
    ]
