"""Names from data and configuration: parsing, quoting and escaping.

Names of tables, columns and topics are untrusted. They become SQL only through
:func:`quote`, folders only through :func:`escape`, JSON paths only through
:func:`json_path`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

# The configuration needs names, and no command should wait for PySpark to read it.
if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

# What a catalog level or a folder can't hold: separators, the escape itself, control
# characters, and what makes a file URI of a path.
_UNSAFE = re.compile(r'[./%\\:?#*"<>|\x00-\x1f\x7f]')


# Iceberg's metadata columns, and the columns that Spark's MERGE adds: tables that have one of these
# can't be merged, and those with the first can't even be read.
_TAKEN = {
    *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
    *("_row_id", "_last_updated_sequence_number"),
    *("__row_from_source", "__row_from_target", "__row_id", "__row_operation"),
}


def is_column_name(name: str) -> bool:
    """False for the names that a column of an Iceberg table can't have (empty, or taken)."""
    return bool(name) and name not in _TAKEN


class TableName(NamedTuple):
    """A source table: two parts, shown as ``namespace.table``."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{_part(self.namespace)}.{_part(self.table)}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``namespace.table``; a part that holds a dot stands in double quotes.

        Raises:
            ValueError: the text has not exactly two parts.
        """
        parts = _split(text)
        if len(parts) != 2 or not all(parts):
            raise ValueError(
                f"{text!r} is not <namespace>.<table>; "
                'write a part that holds a dot in quotes, as in public."a.b"'
            )
        return cls(parts[0], parts[1])


def _part(name: str) -> str:
    if "." in name or '"' in name:
        return '"' + name.replace('"', '""') + '"'
    return name


def _split(text: str) -> list[str]:
    parts, rest = [], text
    while True:
        quoted = re.match(r'"((?:[^"]|"")*)"', rest)
        if quoted:
            parts.append(quoted.group(1).replace('""', '"'))
            rest = rest[quoted.end() :]
        else:
            plain, _, _ = rest.partition(".")
            parts.append(plain)
            rest = rest[len(plain) :]
        if not rest:
            return parts
        if not rest.startswith("."):
            return []
        rest = rest[1:]


def table_name_sql(namespace: str, table: str) -> str:
    """``namespace.table`` of two SQL expressions, spelled as :class:`TableName` does."""

    def part(name: str) -> str:
        odd = f"contains({name}, '.') OR contains({name}, '\"')"
        quoted = f"concat('\"', replace({name}, '\"', '\"\"'), '\"')"
        return f"CASE WHEN {odd} THEN {quoted} ELSE {name} END"

    return f"concat({part(namespace)}, '.', {part(table)})"


def quote(*parts: str) -> str:
    """An SQL identifier of these parts, each in backquotes."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def ddl_of(kind: DataType) -> str:
    """A type as DDL with every member's name quoted, so that equal types are equal texts."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return f"array<{ddl_of(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl_of(kind.keyType)},{ddl_of(kind.valueType)}>"
    if isinstance(kind, StructType):
        members = (f"{quote(field.name)}:{ddl_of(field.dataType)}" for field in kind.fields)
        return f"struct<{','.join(members)}>"
    return kind.simpleString()


def column(name: str, of: str | None = None) -> Column:
    """A column by its literal name, whatever characters it has."""
    from pyspark.sql import functions as F

    return F.col(quote(of, name) if of else quote(name))


def escape(name: str) -> str:
    """A name safe as a catalog level and a folder: unsafe characters become ``%XX``.

    ``.`` and ``..`` can't survive, so a name can't leave the warehouse.
    """
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", name)


def unescape(name: str) -> str:
    """The name that :func:`escape` was given."""
    return re.sub(r"%([0-9A-F]{2})", lambda found: chr(int(found.group(1), 16)), name)


def json_path(name: str, root: str = "$") -> str | None:
    """The VARIANT path of a member, or None where Spark's path syntax can't spell it."""
    if not name:
        return None
    if '"' not in name:
        return f'{root}["{name}"]'
    if "'" not in name:
        return f"{root}['{name}']"
    return None
