"""Output of `cdc-assets quarantine`: unreadable records, the reasons and remedies."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size

from cdc_assets.cdc.changes.quarantine_rows import Quarantined
from cdc_assets.cdc.changes.quarantine_selection import STDOUT, Exported, Selection
from cdc_assets.cdc.changes.reasons import remedy
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.json_values import text_of, texts_of
from cdc_assets.cdc.lake.metadata import made_days
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.names import printable
from cdc_assets.cli import output
from cdc_assets.cli.terminal import echo

COLUMNS = (
    "source", "landing_date", "reason", "detail", "table_name", "topic", "partition", "offset",
    "timestamp", "timestamp_type", "file", "key", "key_base64", "value", "value_base64", "headers",
    "is_gone", "remedy",
)  # fmt: skip
_PIPED = {"key": 200, "value": 1_000}  # characters of a message in a piped table
_COUNTED = 30  # lines of counts by day; older days are summed up
_LISTED = 20  # files in the output
_PROGRAM = "cdc-assets"


def why_none(selection: Selection, reason: str | None = None) -> str:
    """Why nothing is selected from made days."""
    sources = ", ".join(selection.counts)
    others = ", ".join(f"{r} {n}" for r, n in selection.other_reasons.most_common())
    if not others:
        return f"{sources}: these days are made, and no record of them is in quarantine"
    return f"{sources}: no record of these days is in quarantine as {reason}; there are {others}"


# --- printed


def print_selection(selection: Selection, form: str, limit: int | None) -> None:
    """Print the records; a table has counts before and remedies after it."""
    if form != "table":
        printed = output.print_rows(COLUMNS, map(_row, selection.records(limit)), form)
        _say_cut(selection, printed)
        return
    echo("in quarantine, by source, day and reason:")
    output.print_table(("source", "day", "reason", "records"), _count_rows(selection))
    rows, room = [], output.room(_SHOWN)
    for record in selection.records(limit):
        rows.append(_shown(record, room))
    echo("\nthe records, the newest day first:")
    output.print_table(_SHOWN, rows, fold=False, whole=("detail", "key", "value"))
    _say_cut(selection, len(rows))
    echo("\nwhat to do:")
    for reason, count in selection.reasons.most_common():
        echo(f"  {printable(reason)} ({count}): {remedy(reason)}")
    echo("\nthen:")
    for line in _next_commands(selection):
        echo(f"  {line}")


def _say_cut(selection: Selection, printed: int) -> None:
    if printed < selection.total:
        more = f"{printed} of {selection.total} records; --limit N for more"
        echo(more, err=True)


def _count_rows(selection: Selection) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"source": source, "day": str(day), "reason": reason, "records": count}
        for source, counts in selection.counts.items()
        for (day, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    rows.sort(key=lambda row: row["day"], reverse=True)
    if len(rows) <= _COUNTED:
        return rows
    until = rows[_COUNTED]["day"]
    older: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["day"] <= until:
            older[row["source"], row["reason"]] += row["records"]
    return [row for row in rows if row["day"] > until] + [
        {"source": source, "day": f"up to {until}", "reason": reason, "records": count}
        for (source, reason), count in sorted(older.items())
    ]


def _row(found: Quarantined) -> dict[str, Any]:
    """A record with the columns `COLUMNS`; `key`, `key_base64` or both are null."""
    record = found.record
    return {
        "source": found.source,
        "landing_date": str(record.landing_date),
        "reason": found.reason,
        "detail": found.detail,
        "table_name": found.table_name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "file": record.file,
        "key": None,
        "key_base64": None,
        **texts_of("key", record.key),
        "value": None,
        "value_base64": None,
        **texts_of("value", record.value),
        "headers": [{"key": name, **texts_of("value", value)} for name, value in record.headers],
        "is_gone": found.is_gone,
        "remedy": remedy(found.reason),
    }


_SHOWN = (
    "source", "day", "reason", "detail", "table", "topic", "partition", "offset", "file", "key",
    "value",
)  # fmt: skip


def _shown(found: Quarantined, room: int | None) -> dict[str, Any]:
    """A record with the columns `_SHOWN`; `room` is the width of a message on a terminal."""
    record = found.record
    messages = {"key": record.key, "value": record.value}
    return {
        "source": found.source,
        "day": str(record.landing_date),
        "reason": found.reason,
        "detail": found.detail,
        "table": found.table_name,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "file": record.file,
        **{
            name: "(gone)" if found.is_gone else _message(data, room or _PIPED[name])
            for name, data in messages.items()
        },
    }


def _message(data: bytes | None, room: int) -> str:
    """Bytes as text, else base64; a cut one ends with its size in bytes."""
    if data is None:
        return "(null)"
    if not data:
        return "(empty)"
    text = text_of(data)
    if text is None:
        # Not more than fits: three bytes are four characters.
        text = f"(base64) {base64.b64encode(data[: room * 3]).decode()}"
    shown = printable(text[: room + 1])
    if cell_len(shown) <= room:
        return shown
    size = f"… ({len(data):,} bytes)"
    return set_cell_size(shown, max(0, room - len(size))) + size


def _next_commands(selection: Selection) -> list[str]:
    """The commands for the remedies."""
    lines = []
    for source, counts in selection.counts.items():
        if counts:
            first = min(day for day, _ in counts)
            made = made_days(selection.config, own_table(source, "quarantine"))
            lines += [
                f"{source}: after a change of cdc.yaml, make the days again from landing: "
                f"{_run(source, first, max(made))}",
                f"{source}: to correct messages and land them again: "
                f"{_PROGRAM} quarantine --source {source} --export FILE.jsonl",
            ]
    return lines


def advice(config: Config, source: str, done: Exported, to: str) -> list[str]:
    """What was exported and the next steps, a line each."""
    where = "standard output" if to == STDOUT else to
    lines = [f"{done.records} records of {source} written to {where}"]
    if done.gone:
        lines.append(
            f"{done.gone} left out: neither quarantine nor landing still has their bytes, or "
            "landing has several records at their offset; get them from the producer"
        )
    if done.too_long:
        lines.append(
            f"{done.too_long} left out: no landed line can hold a key or value of more than "
            "20,000,000 characters; correct them as Parquet"
        )
    if not done.records:
        return lines
    file = "FILE.jsonl" if to == STDOUT else to
    landing = config.source(source).landing
    if landing.files is None or landing.file_layout is not None:
        return [*lines, *_kafka_advice(config, source, file)]
    return [*lines, *_files_advice(config, source, done, file)]


def _files_advice(config: Config, source: str, done: Exported, file: str) -> list[str]:
    settings = config.source(source)
    folder = str(settings.landing.files).rstrip("/")
    first, newest = min(done.days), max(made_days(config, own_table(source, "quarantine")))
    no_record = (
        [
            f"   {done.lines_without_place} of the lines are not records: give them topic, "
            "partition and offset, or delete them."
        ]
        if done.lines_without_place
        else []
    )
    name = "corrected.jsonl" if file != Path(file).name else file
    return [
        "",
        "Next, where the messages are wrong:",
        f"1. Correct key and value in {file}; delete the lines that stay in quarantine. Leave "
        "topic, partition, offset and timestamp. `quarantined` is the reason; the landing ignores "
        "it.",
        *no_record,
        *_inspect_advice(source, file),
        "2. Replace each bad line in the folder of the same day, so that its offset lands once:",
        *_landed_files(folder, done),
        "   Replace it in the file; or remove it from the file, as Parquet requires, and put the "
        f"corrected lines into {folder}/DAY/{name}. With both records there, the table is right, "
        "but the offset lands twice: the bad record stays in quarantine and the check "
        "offsets_contiguous fails.",
        f"3. {_run(source, first, newest)}",
        "   It lands the changed days again and makes the days after them again; Dagster's sensor "
        "landed_files does so by itself, where it is on.",
        "",
        "Where landed days must not change, put the corrected lines into a newer day's folder, as "
        "a separate file, and run that day. Then:",
        "- earlier days stay as they are, and the records stay in their quarantine;",
        "- the offsets are in two days: offsets_contiguous fails on the newer one, and may fail "
        "on the day after it;",
        *_order_advice(config, source),
    ]


def _landed_files(folder: str, done: Exported) -> list[str]:
    landed = [f"     {folder}/{day}/{name}: {n}" for (day, name), n in sorted(done.files.items())]
    if len(landed) > _LISTED:
        landed = [*landed[:_LISTED], f"     … and {len(landed) - _LISTED} files more"]
    return [printable(line) for line in landed]


def _inspect_advice(source: str, file: str) -> list[str]:
    read = f"{_PROGRAM} inspect {shlex.quote(file)} --source {source}"
    return [f"   Show how they are read: {read}"]


def _kafka_advice(config: Config, source: str, file: str) -> list[str]:
    of = "in a table" if config.source(source).landing.table else "in Kafka"
    return [
        "",
        "Next, where the messages are wrong:",
        f"1. Correct key and value in {file}; delete the lines that stay in quarantine.",
        *_inspect_advice(source, file),
        "2. Send each message to its topic again, with key, value and headers, with your own "
        f"producer. It gets a new offset and lands in the open day. A source {of} "
        "does not land files.",
        f"3. {_run(source, config.today())}",
        "",
        "Then:",
        "- earlier days stay as they are, and the records stay in their quarantine;",
        *_order_advice(config, source),
    ]


def _order_advice(config: Config, source: str) -> list[str]:
    """Effects of a message that lands on a later day than its original."""
    settings = config.source(source)
    lines = [
        "- the position in the message decides, not the day or the offset: a newer change of the "
        "row stays; only between equal positions does the offset decide;",
        "- a snapshot read or tombstone has no position and takes effect after all that landed "
        "before it: leave it out where its row has changed since;",
        f"- what was removed more than {settings.late_days} days before (late_days) comes back.",
    ]
    if settings.on_quarantine == "block":
        lines.append(
            "- on_quarantine: block still blocks the tables of the earlier days; "
            "set publish to publish them."
        )
    return lines


def _run(source: str, first: date, last: date | None = None) -> str:
    to = f" --to {last}" if last and last != first else ""
    return f"{_PROGRAM} run --source {source} --from {first}{to}"
