"""Keys (D5–D10), and keys that are not their table's (R6)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from cdc_assets_tests.model.documents import (
    AsSent,
    NotJsonError,
    finite_json,
    is_of_cells,
    json_text,
    key_text,
    mongodb_id,
    parse_json,
)
from cdc_assets_tests.model.records import Event, KeyDocument, QuarantinedError, Record, Wire
from cdc_assets_tests.model.values import (
    DoesNotFitError,
    Placeholder,
    Type,
    hold,
    infer,
    parse_type,
    read_wire,
    schema_fields,
    widen,
    wire_type,
)

WHOLE_OLD_ROWS = (
    "lindorm", "dataworks", "canal", "maxwell", "ogg", "debezium-mongodb", "debezium-cassandra",
)  # fmt: skip


def read_key_document(data: bytes | None) -> KeyDocument:
    """A message key: struct with schema, bare struct, scalar, null, empty or garbage (D6)."""
    if not data:
        return KeyDocument("missing")
    try:
        document = parse_json(data)
    except NotJsonError:
        return KeyDocument("garbage")
    return _key_document(document)


def _key_document(document: Any) -> KeyDocument:
    schema: Any = None
    # A key may have a column named `payload`: only the two names together are a wrapper.
    if isinstance(document, dict) and set(document) == {"schema", "payload"}:
        wrapper = document["schema"]
        if wrapper is None or isinstance(wrapper, dict):
            schema, document = wrapper, document["payload"]
    if document in (None, "", {}):
        return KeyDocument("missing")
    if isinstance(document, list):
        return KeyDocument("garbage")
    if isinstance(document, dict):
        return KeyDocument("struct", document, schema_fields(schema))
    return KeyDocument("scalar", document, {"": schema} if schema else {})


def _maxwell_key(key: dict[str, Any]) -> dict[str, Any]:
    """``{"database": …, "table": …, "pk.id": 1}``: the columns are those with the prefix."""
    return {n.removeprefix("pk."): v for n, v in key.items() if n.startswith("pk.")}


def _mongodb_key(key: dict[str, Any]) -> dict[str, Any]:
    """``{"id": "<the id as extended JSON>"}``."""
    if not isinstance(key.get("id"), str):
        return {}
    try:
        value = parse_json(finite_json(key["id"]).encode())
    except NotJsonError:
        return {}
    return {"_id": mongodb_id(value)}


def _cassandra_key(key: dict[str, Any]) -> dict[str, Any]:
    """Values, or cells."""

    def is_cell(value: Any) -> bool:
        return isinstance(value, dict) and {"value", "deletion_ts"} <= set(value)

    return {name: v["value"] if is_cell(v) else v for name, v in key.items()}


def _debezium_key(key: dict[str, Any]) -> dict[str, Any]:
    """Values, or YugabyteDB's cells (D22)."""
    if not is_of_cells(key):
        return key
    return {n: cell["value"] for n, cell in key.items() if cell is not None and cell["set"]}


KEYS_OF_FORMATS = {
    "debezium": _debezium_key,
    "maxwell": _maxwell_key,
    "debezium-mongodb": _mongodb_key,
    "debezium-cassandra": _cassandra_key,
}


def read_header_key(data: bytes | None) -> KeyDocument:
    """A key in a header: struct, JSON text, JSON with schema, or ``Struct{id=1}`` (D9)."""
    found = read_key_document(data)
    if found.state == "scalar" and isinstance(found.value, str):
        try:
            return _key_document(parse_json(found.value.encode()))
        except NotJsonError:
            return found
    if found.state == "garbage" and data is not None:
        java = re.fullmatch(rb"Struct\{(.*)\}", data, re.DOTALL)
        members = [part.split("=", 1) for part in java[1].decode().split(",")] if java else [[""]]
        if all(len(member) == 2 for member in members):
            return KeyDocument("struct", {member[0]: member[1] for member in members})
    return found


def _header_key(record: Record, name: str) -> KeyDocument:
    values = [value for header, value in record.headers if header == name]
    try:
        return read_header_key(values[0] if values else None)
    except UnicodeDecodeError:
        return KeyDocument("garbage")


def set_keys(
    source: dict[str, Any],
    configs: dict[str, dict[str, Any]],
    placeholder: Placeholder,
    event: Event,
) -> None:
    """key, old_key, new_key; or quarantine with a key reason if the table is configured."""
    config = configs.get(event.table_name or "")
    try:
        read_keys(source, config or {}, placeholder, event)
    except QuarantinedError as error:
        if config is not None:
            event.destination, event.reason = "quarantine", error.reason


def read_keys(
    source: dict[str, Any], config: dict[str, Any], placeholder: Placeholder, event: Event
) -> None:
    key_config = config.get("key")
    if event.op == "t":
        return
    if key_config == "none":  # D7, O14
        if event.op not in ("c", "r"):
            raise QuarantinedError("missing_key")
        return
    if key_config == "row":  # O14: the old row itself is the key
        needs_before = event.removes or (event.op == "u" and event.half != "after")
        if needs_before and event.before is None:
            raise QuarantinedError("missing_key")
        return

    message_key = read_key_document(event.record.key)
    of_format = KEYS_OF_FORMATS.get(source.get("format", "debezium"))
    if of_format is not None and message_key.state == "struct":
        row, wires = of_format(message_key.value), message_key.wires
        if of_format is not _debezium_key:
            wires = {}  # they say nothing of the columns
        message_key = KeyDocument("struct", row, wires) if row else KeyDocument("missing")
    columns = _key_columns(key_config, event, message_key)
    # D5, D8: `before` is the old row only where somebody vouches for it.
    by_format = source.get("format") in WHOLE_OLD_ROWS
    whole_before = by_format or config.get("replica_identity") == "full"
    old_row = event.before if whole_before else None
    after = event.after if event.writes else None
    if by_format:
        placeholder = Placeholder("\0there is none\0")
    types = {name: parse_type(text) for name, text in (config.get("columns") or {}).items()}
    # Without a configured key the message key says it all.
    places: list[dict[str, Any] | KeyDocument | None] = [message_key]
    if key_config or event.source_key:
        places = [after, old_row, message_key] if by_format else [after, message_key, old_row]
    event.key = _key_from(columns, places, event, types, placeholder)
    if event.writes:
        images = {**(event.after or {}), **((old_row or {}) if by_format else {})}
        for name in event.key:
            if name not in images and name in message_key.wires and name not in types:
                event.wires.setdefault(name, message_key.wires[name])

    if event.is_tombstone:
        return
    event.new_key = _key_of_header("__debezium.newkey", columns, event, types, placeholder)
    event.old_key = _key_of_header("__debezium.oldkey", columns, event, types, placeholder)
    event.is_old_key_sent = event.old_key is not None
    if event.old_key is None and event.op == "u" and event.after is not None and whole_before:
        event.old_key = _moved_from(columns or [], event, types, placeholder)  # D10, W3
    if event.old_key is not None and key_text(event.old_key) == key_text(event.key):
        event.old_key = None


def _key_columns(key_config: Any, event: Event, message_key: KeyDocument) -> list[str] | None:
    if key_config:
        return [key_config] if isinstance(key_config, str) else list(key_config)
    if event.source_key:
        return event.source_key
    return list(message_key.value) if message_key.state == "struct" else None


def _key_from(
    columns: list[str] | None,
    places: Sequence[dict[str, Any] | KeyDocument | None],
    event: Event,
    types: dict[str, Type],
    placeholder: Placeholder,
) -> dict[str, Any]:
    """Each key column from the first place that has it: images, and the message key."""
    documents = [place for place in places if isinstance(place, KeyDocument)]
    unreadable = any(found.state == "garbage" for found in documents)
    if columns is None:
        is_scalar = any(found.state == "scalar" for found in documents)
        raise QuarantinedError("malformed_key" if unreadable or is_scalar else "missing_key")
    key: dict[str, Any] = {}
    missing = False
    for name in columns:
        for place in places:
            if isinstance(place, KeyDocument):
                if place.state == "struct" and name in place.value:
                    raw, key_wire = place.value[name], place.wires.get(name)
                    break
                if place.state == "scalar" and len(columns) == 1:
                    raw, key_wire = place.value, place.wires.get("")
                    break
            elif place is not None and name in place and not placeholder(place[name]):
                raw, key_wire = place[name], None
                break
        else:
            missing = True
            continue
        if raw is None:
            raise QuarantinedError("malformed_key")
        try:
            key[name] = _key_value(raw, key_wire, event.wires.get(name), types.get(name))
        except DoesNotFitError as error:
            raise QuarantinedError("malformed_key") from error
    if missing:
        raise QuarantinedError("malformed_key" if unreadable else "missing_key")
    return key


def _key_value(
    raw: Any, key_wire: Wire | None, value_wire: Wire | None, configured: Type | None
) -> Any:
    """Read as the key's schema writes it, held as the value's column has it (D5)."""
    wire = key_wire or value_wire
    value = read_wire(wire, raw) if wire else raw
    target = configured or (value_wire and wire_type(value_wire))
    target = target or (key_wire and wire_type(key_wire)) or None
    if target and target[0] in ("struct", "array", "map"):
        return json_text(raw)  # no key column has members
    if target:
        is_truth = isinstance(value, bool) or value in ("true", "false")
        if is_truth and target[0] not in ("boolean", "string"):
            raise DoesNotFitError("no number")
        return hold(value, target)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return value
    if not _is_in_variant(value):
        return str(value)
    return AsSent(value) if isinstance(value, Decimal) else value


def _is_in_variant(number: int | Decimal) -> bool:
    """Does VARIANT hold the number? Else it stands as the text of its digits."""
    return abs(number) < 10**38 if isinstance(number, int) else math.isfinite(float(number))


def _key_of_header(
    header: str,
    columns: list[str] | None,
    event: Event,
    types: dict[str, Type],
    placeholder: Placeholder,
) -> dict[str, Any] | None:
    found = _header_key(event.record, header)
    if found.state != "struct":
        return None
    try:
        return _key_from(columns, [found], event, types, placeholder)
    except QuarantinedError:
        return None


def _moved_from(
    columns: list[str], event: Event, types: dict[str, Type], placeholder: Placeholder
) -> dict[str, Any] | None:
    """The key of ``before`` where it differs from that of ``after`` (D10)."""
    try:
        old = _key_from(columns, [event.before], event, types, placeholder)
    except QuarantinedError:
        return None
    try:
        now = _key_from(columns, [event.after], event, types, placeholder)
    except QuarantinedError:
        now = event.key or {}
    return old if key_text(old) != key_text(now) else None


KeyForm = tuple[tuple[str, tuple[Type, ...]], ...]  # column → the types it can be read as


def judge_keys(
    configs: dict[str, dict[str, Any]], days: list[tuple[date, list[Event]]]
) -> frozenset[tuple[date, int]]:
    """A few keys with other columns, or of a type that the table's key can't hold, are malformed;
    where they are more than half of the day they are the rule, and the table refuses them."""
    misfits: set[tuple[date, int]] = set()
    for name, config in configs.items():
        if config.get("key") in ("none", "row"):
            continue
        so_far: KeyForm | None = None
        for day, events in days:
            for event in events:
                old_key = (event.old_key or {}).items()
                if not all(_holds(wire_type(event.wires.get(n) or {}), v) for n, v in old_key):
                    event.old_key = None  # no row has such a key
            keyed = [
                e
                for e in events
                if e.destination == "changes" and e.table_name == name and e.key is not None
            ]
            forms = {id(e): _key_form(e, config) for e in keyed}
            counts = Counter(forms[id(e)] for e in keyed if not e.is_tombstone)
            settled = _settled_form(counts, so_far)
            so_far = settled or so_far
            for event in keyed if settled is not None else []:
                if event.is_tombstone:
                    fits = _key_fits(settled or (), event.key or {})
                else:
                    fits = _form_holds(settled or (), forms[id(event)])
                if not fits:
                    event.destination, event.reason = "quarantine", "malformed_key"
                    misfits |= {(day, n) for n, e in enumerate(events) if e is event}
    return frozenset(misfits)


def _holds(column_type: Type | None, value: Any) -> bool:
    """Can a column of this type hold the value? Of an unknown type: yes."""
    with suppress(DoesNotFitError):
        if column_type is not None:
            hold(value, column_type)
        return True
    return False


def _key_form(event: Event, config: dict[str, Any]) -> KeyForm:
    types = {name: parse_type(text) for name, text in (config.get("columns") or {}).items()}
    form = []
    for name, value in sorted((event.key or {}).items()):
        wire = event.wires.get(name)
        known = (wire and wire_type(wire)) or types.get(name)
        form.append((name, (known,) if known and _holds(known, value) else _readings(value)))
    return tuple(form)


def _readings(value: Any) -> tuple[Type, ...]:
    """The types that a JSON value can be read as, its own first."""
    is_long = isinstance(value, int) and abs(value) >= 2**63
    kinds: list[Type] = [("decimal", 38, 0) if is_long else infer([value])]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
        kinds.append(("bigint",))
    if ("bigint",) in kinds:
        kinds.append(("double",))
    return tuple(dict.fromkeys([*kinds, ("string",)]))


def _form_holds(own: KeyForm, other: KeyForm) -> bool:
    if [name for name, _ in own] != [name for name, _ in other]:
        return False
    pairs = zip(own, other, strict=True)
    return all(any(widen(o[0], kind) for kind in kinds) for (_, o), (_, kinds) in pairs)


def _key_fits(form: KeyForm, key: dict[str, Any]) -> bool:
    """Can the table's key hold a tombstone's, which comes without the value's schema?"""
    kinds = dict(form)
    if set(kinds) != set(key):
        return False
    try:
        for column, value in key.items():
            hold(value, kinds[column][0])
    except DoesNotFitError:
        return False
    return True


def _settled_form(counts: Counter[KeyForm], before: KeyForm | None) -> KeyForm | None:
    total = counts.total()

    def held(form: KeyForm) -> int:
        return sum(n for other, n in counts.items() if _form_holds(form, other))

    if before is not None and (total - held(before)) * 2 <= total:
        return before
    most = max(counts, key=lambda f: (counts[f], held(f), str(f)), default=None)
    return most if most is not None and held(most) * 2 > total else None
