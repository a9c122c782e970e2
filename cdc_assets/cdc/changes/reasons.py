"""Why a record is quarantined: the closed list, what each reason means and what to do.

They are judged in this order: a record has the first that applies. (`over_limit` by a schema is
judged before `registry_encoded`, by columns after all others.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A reason code; `record` continues "the record …", `remedy` is what to do next."""

    code: str
    record: str
    remedy: str


_LISTED = (
    Reason(
        "over_limit",
        "is beyond a limit of the source: by its size, its columns, or its schema",
        "see `detail`, which names the limit; raise `max_record_mb` or `max_columns` if the record "
        "is meant so, otherwise fix the producer",
    ),
    Reason(
        "malformed_landing_line",
        "is a landed line that is not a record",
        "fix what lands the files; `detail` shows the start of the line",
    ),
    Reason(
        "registry_encoded",
        "has the id of a registry's schema and can't be decoded",
        "see `detail`; name the registry in `landing.registry`, then make the day again with "
        "`--force`; write Avro or Kafka Connect's JSON in the place of Protobuf",
    ),
    Reason(
        "malformed_json",
        "is not exactly one strict JSON document",
        "fix the producer; `detail` shows the start of the value",
    ),
    Reason(
        "not_an_envelope",
        "is JSON of another shape",
        "see `detail`; check `format` with `cdc-assets discover` (flattened records need "
        "`debezium-flat`); keep other records off the topic",
    ),
    Reason(
        "missing_op",
        "has no `op`",
        "see `detail`, which names the format if it is a known one; otherwise fix the producer",
    ),
    Reason(
        "unknown_op",
        "has an `op` that the format does not have",
        "check `format` with `cdc-assets discover`, otherwise fix the producer",
    ),
    Reason(
        "missing_table",
        "names no table; or is a lone tombstone on a topic of no table, or of several",
        "see `detail`: it names what is missing and the option that adds it, or the connector "
        "that is not read; give each table a topic of its own",
    ),
    Reason("missing_image", "lacks the row that its op must carry", "fix the producer"),
    Reason(
        "malformed_key",
        "has a key that can't be read or holds a null, and its row does not hold all key columns",
        "check `key` in cdc.yaml and the message key",
    ),
    Reason(
        "missing_key",
        "has no key: neither a message key nor the configured key columns",
        "name the columns in `key`; or set `key: none` for rows that are only ever added, or "
        "`key: row` where updates and deletes carry the whole old row",
    ),
)
REASONS = {reason.code: reason for reason in _LISTED}


def remedy(code: str) -> str:
    """What to do about records that are quarantined for a reason, as a sentence.

    A lake may hold reasons of a newer version.
    """
    reason = REASONS.get(code)
    if reason is None:
        return "See `detail`; this version of cdc-assets does not know the reason."
    return f"{reason.remedy[0].upper()}{reason.remedy[1:]}."
