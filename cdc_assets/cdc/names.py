"""Names from data and configuration: parsing, quoting and escaping.

Names of tables, columns and topics are untrusted. They become SQL only through
:func:`quote`, folders only through :func:`escape`, JSON paths only through
:func:`json_path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

# The configuration imports this module, and must load without PySpark.
if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

# Characters that a catalog level or a folder can't have: separators, the escape itself, control
# characters, and those with a meaning in file URIs.
_UNSAFE = re.compile(r'[./%\\:?#*"<>|\x00-\x1f\x7f]')


# Iceberg's metadata columns make a table unreadable, the columns of Spark's MERGE unmergeable.
_RESERVED = {
    *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
    *("_row_id", "_last_updated_sequence_number"),
    *("__row_from_source", "__row_from_target", "__row_id", "__row_operation"),
}


def is_column_name(name: str) -> bool:
    """False for names that a column of an Iceberg table can't have (empty or reserved)."""
    return bool(name) and name not in _RESERVED


# Between database and schema, in a namespace of a source that reads several databases.
DATABASE_SEPARATOR = "__"


class TableName(NamedTuple):
    """A source table: two parts, shown as ``namespace.table``."""

    namespace: str
    table: str

    def __str__(self) -> str:
        return f"{_part(self.namespace)}.{_part(self.table)}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``namespace.table``; a part with a dot is in double quotes.

        Raises:
            ValueError: the text has not exactly two parts.
        """
        namespace, table = _parts(text, 2)
        return cls(namespace.text, table.text)

    @classmethod
    def in_database(cls, database: str, schema: str, table: str) -> TableName:
        """A table of a source that reads several databases (FORMATS D4)."""
        return cls(f"{database}{DATABASE_SEPARATOR}{schema}", table)

    @classmethod
    def configured(cls, text: str) -> TableName:
        """As :meth:`parse`; also reads ``database.schema.table``.

        Raises:
            ValueError: the text has neither two nor three parts.
        """
        *namespace, table = (part.text for part in _parts(text, 2, 3))
        return cls(DATABASE_SEPARATOR.join(namespace), table)


# The kinds of tables that are derived from a table, by the ends of their names.
HISTORY, FEED = "history", "feed"


def derived_name(table: str, kind: str) -> TableName:
    """The history or the feed of a table, beside it in its namespace."""
    name = TableName.parse(table)
    return TableName(name.namespace, f"{name.table}__{kind}")


def _part(name: str) -> str:
    if "." in name or '"' in name:
        return '"' + name.replace('"', '""') + '"'
    return name


class _Part(NamedTuple):
    """A part of a table's name; quoted parts have no wildcards."""

    text: str
    is_quoted: bool

    @property
    def is_wild(self) -> bool:
        return not self.is_quoted and bool(_WILDCARD.search(self.text))

    @property
    def pieces(self) -> list[str]:
        """Literal texts and, at odd indexes, wildcards."""
        return [self.text] if self.is_quoted else _WILDCARD.split(self.text)


_WILDCARD = re.compile(r"([*?])")
_REGEX = {"*": ".*", "?": "."}


class TablePattern(NamedTuple):
    """A table name with wildcards: ``*`` matches any text of a part, ``?`` one character.

    `namespace` and `table` are regular expressions; `literals` counts the other characters,
    including the dot between the parts.
    """

    namespace: str
    table: str
    literals: int
    is_exact: bool

    def matches(self, name: TableName) -> bool:
        """Whether both parts match, case-sensitively."""
        pairs = ((self.namespace, name.namespace), (self.table, name.table))
        return all(re.fullmatch(pattern, part, re.DOTALL) for pattern, part in pairs)

    @classmethod
    @cache
    def parse(cls, text: str) -> TablePattern:
        """Read ``namespace.table`` or ``database.schema.table`` with wildcards outside quotes.

        Raises:
            ValueError: the text has neither two nor three parts.
        """
        parts = _parts(text, 2, 3)
        *namespace, table = (
            "".join(_REGEX[p] if n % 2 else re.escape(p) for n, p in enumerate(part.pieces))
            for part in parts
        )
        literals = 1 + sum(len(piece) for part in parts for piece in part.pieces[::2])
        is_exact = not any(part.is_wild for part in parts)
        return cls(DATABASE_SEPARATOR.join(namespace), table, literals, is_exact)


def pattern_of_names(text: str) -> str:
    """A regular expression of the names, as `str` writes them, that a pattern or name matches.

    It has two groups for each wildcard: what it stands for in a part without quotes, and in a
    quoted one, where `"` is doubled.

    Raises:
        ValueError: the text has neither two nor three parts.
    """
    *namespace, table = ([*_marked(part)] for part in _parts(text, 2, 3))
    first, *others = namespace
    for part in others:
        first += [(DATABASE_SEPARATOR, False), *part]
    return r"\.".join(map(_canonical_part, (first, table)))


def _marked(part: _Part) -> Iterator[tuple[str, bool]]:
    """The pieces of a part, and whether each is a wildcard."""
    return ((piece, n % 2 == 1) for n, piece in enumerate(part.pieces))


def _canonical_part(pieces: Iterable[tuple[str, bool]]) -> str:
    plain, quoted = "", ""
    for piece, is_wild in pieces:
        plain += f"({_PLAIN[piece]})" if is_wild else re.escape(piece)
        quoted += f"({_QUOTED[piece]})" if is_wild else re.escape(piece.replace('"', '""'))
    return f'(?:{plain}|"{quoted}")'


_PLAIN = {"*": r'[^."]*', "?": r'[^."]'}
_QUOTED = {"*": r'(?:[^"]|"")*', "?": r'(?:[^"]|"")'}


class TablePath(NamedTuple):
    """A table of any catalog, or the tables of a namespace whose names match a pattern."""

    namespace: tuple[str, ...]  # the catalog may be its first part
    table: str

    @property
    def is_pattern(self) -> bool:
        """Whether the last part has a ``*``, which stands for any text."""
        return "*" in self.table

    def matches(self, table: str) -> bool:
        """Whether the last part is this name, or its pattern matches it."""
        pattern = ".*".join(map(re.escape, self.table.split("*")))
        return re.fullmatch(pattern, table, re.DOTALL) is not None

    @classmethod
    def parse(cls, text: str) -> TablePath:
        """Read ``[catalog.]namespace.table``; a part with a dot is in double quotes.

        Raises:
            ValueError: the text has fewer than two parts, or an empty one.
        """
        *namespace, table = [part.text for part in _split(text)] or [""]
        if not namespace or not all((*namespace, table)):
            raise ValueError(
                f"got {text!r}; expected [catalog.]namespace.table, a part that holds a dot in "
                'quotes, as in lake.bronze."a.b"'
            )
        return cls(tuple(namespace), table)


def is_table_pattern(text: str) -> bool:
    """True for a name with ``*`` or ``?`` outside quotes."""
    return any(part.is_wild for part in _split(text))


def wildcards_in_parts(text: str) -> tuple[int, int]:
    """The numbers of wildcards outside quotes: in front of the table's own name, and in it."""
    *namespace, table = (len(part.pieces) // 2 for part in _split(text))
    return sum(namespace), table


def parts_in(text: str) -> int:
    """The number of parts of a table's name; 0 for an invalid one."""
    return len(_split(text))


def with_database(text: str) -> str | None:
    """The lake's name of ``[source.]database.schema.table``; None for fewer parts."""
    parts = [part.text for part in _split(text)]
    if len(parts) < 3:
        return None
    *source, database, schema, table = parts
    return ".".join([*source, str(TableName.in_database(database, schema, table))])


def config_key(table: str, database: str | None = None) -> str:
    """A table's key in cdc.yaml: parts with a wildcard are quoted.

    Args:
        table: ``namespace.table``.
        database: the first of three parts, for a source that reads several databases.
    """
    parts: tuple[str, ...] = TableName.parse(table)
    if database is not None:
        parts = (database, parts[0].removeprefix(database + DATABASE_SEPARATOR), parts[1])
    quoted = ('"' + part.replace('"', '""') + '"' for part in parts)
    return ".".join(
        text if _WILDCARD.search(part) else _part(part)
        for part, text in zip(parts, quoted, strict=True)
    )


def key_in_database(table: str, database: str) -> str:
    """The key in cdc.yaml of the table ``schema.table`` of one of several databases."""
    schema, name = TableName.parse(table)
    return config_key(str(TableName.in_database(database, schema, name)), database)


def _parts(text: str, *counts: int) -> list[_Part]:
    parts = _split(text)
    if len(parts) not in counts or not all(part.text for part in parts):
        also = " (of several databases: <database>.<schema>.<table>)" if 3 in counts else ""
        raise ValueError(
            f"{text!r} is not <namespace>.<table>{also}; "
            'write a part that holds a dot in quotes, as in public."a.b"'
        )
    return parts


def _split(text: str) -> list[_Part]:
    parts, rest = [], text
    while True:
        quoted = re.match(r'"((?:[^"]|"")*)"', rest)
        if quoted:
            parts.append(_Part(quoted.group(1).replace('""', '"'), True))
            rest = rest[quoted.end() :]
        else:
            plain, _, _ = rest.partition(".")
            parts.append(_Part(plain, False))
            rest = rest[len(plain) :]
        if not rest:
            return parts
        if not rest.startswith("."):
            return []
        rest = rest[1:]


def namespace_of_database_sql(database: str, schema: str) -> str:
    """The namespace of :meth:`TableName.in_database` as SQL; the arguments are SQL expressions."""
    return f"concat({database}, '{DATABASE_SEPARATOR}', {schema})"


def table_name_sql(namespace: str, table: str) -> str:
    """`str(TableName)` as SQL; the arguments are SQL expressions."""

    def part(name: str) -> str:
        odd = f"contains({name}, '.') OR contains({name}, '\"')"
        quoted = f"concat('\"', replace({name}, '\"', '\"\"'), '\"')"
        return f"CASE WHEN {odd} THEN {quoted} ELSE {name} END"

    return f"concat({part(namespace)}, '.', {part(table)})"


def quote(*parts: str) -> str:
    """An SQL identifier of these parts, each in backquotes."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def ddl_of(kind: DataType) -> str:
    """A type as DDL with quoted member names; equal types have equal DDL."""
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
    """A name safe as a catalog level and a folder: unsafe characters become ``%xx``.

    The escapes are in lower case, for engines that fold names. ``.`` and ``..`` are escaped, so a
    name can't leave the warehouse.
    """
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02x}", name)


def escape_in_upper_case(name: str) -> str:
    """The escape of earlier versions."""
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", name)


def printable(text: str) -> str:
    """A text on one line, with control characters and marks of direction escaped.

    In a terminal or a log they could move the cursor, reverse text or fake a line of the program.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def json_path(name: str, root: str = "$") -> str | None:
    """The VARIANT path of a member, or None if Spark's path syntax can't express it."""
    if not name:
        return None
    if '"' not in name:
        return f'{root}["{name}"]'
    if "'" not in name:
        return f"{root}['{name}']"
    return None
