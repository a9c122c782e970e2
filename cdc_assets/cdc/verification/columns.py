"""How a column of the source is compared with that of the lake: exactly, or not at all.

Each comparable column is asked of PostgreSQL in a form that Spark reads without a loss, and becomes
the type that the lake has (FORMATS R3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from cdc_assets.cdc.json_reader import read
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql
from cdc_assets.cdc.verification.postgres import SourceColumn

_WHOLE = {"int2", "int4", "int8", "oid"}
_TEXTS = {
    "text", "varchar", "citext", "uuid", "xml", "ltree", "macaddr", "macaddr8", "cidr", "tsvector",
    "int4range", "int8range", "numrange", "tsrange", "daterange", "name",
}  # fmt: skip
_IN_ARRAYS = {"bool", "int2", "int4", "int8", "float8", "text", "varchar", "uuid", "date"}


@dataclass(frozen=True)
class Compared:
    """A column that is compared.

    `asked` is PostgreSQL's expression. `source` makes the lake's value of it, a column of the name,
    and `lake` what is compared with that. `is_unfit` is true for a value of the source that the
    lake's column can't hold (R4). `as_asked` is the lake's value as PostgreSQL writes `asked` as
    text, None where both do not write it alike.
    """

    name: str
    asked: Sql
    source: Sql
    lake: Sql
    is_unfit: Sql = "false"
    as_asked: Sql | None = None


@dataclass(frozen=True)
class Columns:
    """The columns that both have and that are compared, and the others, each with the reason."""

    compared: tuple[Compared, ...]
    left_out: Mapping[str, str]


def columns_of(
    source: Iterable[SourceColumn],
    lake: Mapping[str, str],
    names: Mapping[str, str],
    hashed: Collection[str] = (),
) -> Columns:
    """How the columns of a table are compared.

    Args:
        source: the source's.
        lake: the lake's own columns, and their types.
        names: the lake's name of a column of the source, where it has another one.
        hashed: columns of which the lake has hashes alone.
    """
    compared, left_out, known = [], {}, set()
    for column in source:
        name = names.get(column.name, column.name)
        known.add(name)
        if name not in lake:
            left_out[name] = "the lake has no such column"
            continue
        if name in hashed:
            left_out[name] = "the lake has its hash"
            continue
        found = _compared(column, name, lake[name])
        if found is None:
            left_out[name] = f"{column.declared} and {lake[name]} are not compared"
        else:
            compared.append(found)
    left_out |= {name: "the source has no such column" for name in lake if name not in known}
    return Columns(tuple(compared), left_out)


def _compared(column: SourceColumn, name: str, kind: str) -> Compared | None:
    own = '"' + column.name.replace('"', '""') + '"'
    sent, value = quote(name), quote(name)
    if column.element is not None:
        return _array(column, name, own, kind)
    if column.type in _WHOLE and kind in ("int", "bigint"):
        text = f"CAST({value} AS string)"
        return Compared(name, f"{own}::bigint", f"CAST({sent} AS {kind})", value, as_asked=text)
    if column.type == "bool" and kind == "boolean":
        return Compared(name, own, sent, value)
    if column.type in ("float4", "float8") and kind in ("float", "double"):
        return Compared(name, own, f"CAST({sent} AS {kind})", value)
    if column.type in ("numeric", "money") and kind.startswith("decimal"):
        number = f"try_cast({sent} AS {kind})"
        is_unfit = f"{sent} IS NOT NULL AND {number} IS NULL"
        return Compared(name, f"{own}::numeric::text", number, value, is_unfit)
    if column.type == "numeric" and kind == "string":
        return Compared(name, f"{own}::text", _plain(sent), _plain(value))
    if column.type == "bytea" and kind == "binary":
        return Compared(name, own, sent, value)
    if column.type == "date" and kind == "date":
        days = f"CASE WHEN NOT isfinite({own}) THEN {_NONE} ELSE {own} - DATE '1970-01-01' END"
        made = "date_from_unix_date(CAST({} AS int))"
        return replace(_at(name, days, made), as_asked=f"CAST(unix_date({value}) AS string)")
    if column.type in ("timestamp", "timestamptz") and kind.startswith("timestamp"):
        micros = f"(extract(epoch FROM {own}) * 1000000)::bigint"
        asked = f"CASE WHEN NOT isfinite({own}) THEN {_NONE} ELSE {micros} END"
        return _at(name, asked, f"CAST(timestamp_micros({{}}) AS {kind})")
    if column.type == "time" and kind == "bigint":
        return Compared(name, f"(extract(epoch FROM {own}) * 1000000)::bigint", sent, value)
    if kind != "string":
        return None
    if column.type in ("json", "jsonb"):
        return Compared(name, f"{own}::text", _json(sent), _json(value))
    if column.type == "bpchar":
        return Compared(name, own, sent, value)  # as text it would lose its blanks
    if column.type == "inet":
        return Compared(name, f"abbrev({own})", sent, value)
    if column.type in _TEXTS or column.kind == "e":
        return Compared(name, f"{own}::text", sent, value, as_asked=value)
    return None


_NONE = -(2**63)  # stands for what no column of the lake can hold


def _at(name: str, asked: Sql, made: Sql) -> Compared:
    sent = quote(name)
    is_unfit = f"{sent} <=> {_NONE + 1}L - 1L"
    value = f"CASE WHEN NOT ({is_unfit}) THEN {made.format(sent)} END"
    return Compared(name, f"({asked})::bigint", value, sent, is_unfit)


def _array(column: SourceColumn, name: str, own: Sql, kind: str) -> Compared | None:
    if column.element not in _IN_ARRAYS or not kind.startswith("array<"):
        return None
    element = kind.removeprefix("array<").removesuffix(">")
    if "<" in element:
        return None
    sent = quote(name)
    items = f"from_json({sent}, 'array<string>')"
    made = f"transform({items}, item -> CAST(item AS {element}))"
    return Compared(name, f"to_jsonb({own})::text", made, sent)


def _plain(text: Sql) -> Sql:
    """An exact number as text without zeros at its end, which come or stay away."""
    return f"regexp_replace(regexp_replace({text}, '([.][0-9]*?)0+$', '$1'), '[.]$', '')"


def _json(text: Sql) -> Sql:
    """The canonical JSON of a document, else the text itself."""
    return f"coalesce({read(text, json=('json',))}.json, {text})"
