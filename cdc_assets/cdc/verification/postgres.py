"""One snapshot of a PostgreSQL database, read by several connections of Spark's JDBC.

A connection exports it and stays open; each other one takes it over before it reads. What is asked
needs no right but to read the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.cdc.added_jars import add_postgresql
from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.errors import SourceError
from cdc_assets.cdc.java_errors import root_cause
from cdc_assets.cdc.names import DATABASE_SEPARATOR, TableName
from cdc_assets.cdc.sqltext import Sql

_DRIVER = "org.postgresql.Driver"
_FETCHED = 10_000  # rows a round trip; all at once without it
_TID_SCANS = 140_000  # the version since which a range of ctid reads its pages alone
# A table and its partitions; of one that has none, PostgreSQL says no tree at all.
_PARTITIONS = "(SELECT ?::regclass UNION SELECT relid FROM pg_partition_tree(?::regclass))"


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source: its name, the name of its type, and that as it is declared.

    `kind` is the type's letter in ``pg_type.typtype`` (e of an enumeration, d of a domain);
    `element` is the name of an array's type, else None.
    """

    name: str
    type: str
    declared: str
    kind: str
    element: str | None


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of a database, held by an open connection.

    Attributes:
        id: by which other connections take it over.
        xmax, in_progress: the transactions that are in it, as ``pg_current_snapshot()``.
        lsn: no transaction of it has committed behind this place in the WAL.
        ms: when it was taken, by the database's clock, ms UTC.
    """

    spark: SparkSession
    address: Address
    connection: Any
    id: str
    xmax: int
    in_progress: Sequence[int]
    lsn: int
    ms: int
    version: int

    def ask(self, statement: str, *texts: str) -> list[dict[str, Any]]:
        """The rows of a query; `texts` are its parameters."""
        return _ask(self.connection, statement, *texts)

    def columns(self, table: TableName) -> list[SourceColumn]:
        """The columns of a table, in its order.

        Raises:
            SourceError: there is no such table, or the user may not read it.
        """
        relation = str(table)
        found = self.ask(
            "SELECT a.attname AS name, t.typname AS type, t.typtype::text AS kind, "
            "e.typname AS element, format_type(a.atttypid, a.atttypmod) AS declared "
            "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "LEFT JOIN pg_type e ON e.oid = t.typelem "
            "AND t.typcategory = 'A' WHERE a.attrelid = to_regclass(?) AND a.attnum > 0 "
            "AND NOT a.attisdropped ORDER BY a.attnum",
            quoted(table),
        )
        if not found:
            raise SourceError(f"{self.address}: there is no table {relation}")
        return [SourceColumn(**row) for row in found]

    def count(self, table: TableName) -> int:
        """About how many rows a table has; counted where PostgreSQL has no statistics of it."""
        name = quoted(table)
        (found,) = self.ask(
            "SELECT CASE WHEN bool_and(reltuples >= 0) THEN sum(reltuples)::bigint END AS n "
            f"FROM pg_class WHERE relkind = 'r' AND oid IN {_PARTITIONS}",
            *(name, name),
        )
        if found["n"] is None:
            (found,) = self.ask(f"SELECT count(*) AS n FROM {name}")
        return int(found["n"])

    def is_visible(self, transaction: Sql) -> Sql:
        """True for a transaction, a BIGINT of 32 bits as events have it, that is in the snapshot.

        Its upper half is that of the transactions near it: they count on without an end.
        """
        base, wrap = self.xmax & ~0xFFFFFFFF, 1 << 32
        near = f"({base}L + {transaction})"
        whole = (
            f"CASE WHEN {near} > {self.xmax + (wrap >> 1)}L THEN {near} - {wrap}L "
            f"WHEN {near} < {self.xmax - (wrap >> 1)}L THEN {near} + {wrap}L ELSE {near} END"
        )
        listed = ", ".join(f"{number}L" for number in self.in_progress)
        is_over = f" AND {whole} NOT IN ({listed})" if listed else ""
        return f"({whole} < {self.xmax}L{is_over})"

    def rows(
        self, table: TableName, columns: Mapping[str, Sql], where: Sql | None, parts: int
    ) -> DataFrame:
        """Rows of a table as they are in the snapshot; nothing is read yet.

        Args:
            columns: PostgreSQL's expression of each column that is asked for.
            where: a condition of PostgreSQL; None: all rows.
            parts: over so many connections, one after the other on each core.
        """
        listed = ", ".join(f'{sql} AS "{name}"' for name, sql in columns.items())
        frames = []
        for own in self._parts(table, parts):
            conditions = [f"({condition})" for condition in (own, where) if condition]
            filtered = f" WHERE {' AND '.join(conditions)}" if conditions else ""
            frames.append(self._read(f"SELECT {listed} FROM {quoted(table)}{filtered}"))
        return reduce(DataFrame.unionAll, frames)

    def _read(self, query: str) -> DataFrame:
        options = {
            **self.address.properties,
            "url": self.address.jdbc_url,
            "driver": _DRIVER,
            "dbtable": f"({query}) AS source_rows",
            "fetchsize": str(_FETCHED),
            "sessionInitStatement": (
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                f"SET TRANSACTION SNAPSHOT '{self.id}'"
            ),
        }
        return self.spark.read.format("jdbc").options(**options).load()

    def _parts(self, table: TableName, parts: int) -> list[str | None]:
        """Conditions that each row fulfils one of: ranges of pages."""
        if self.version < _TID_SCANS or parts < 2:
            return [None]
        found = self.ask(
            "SELECT coalesce(max(pg_relation_size(oid)), 0) "
            "/ current_setting('block_size')::int AS pages "
            f"FROM pg_class WHERE oid IN {_PARTITIONS}",
            *(quoted(table), quoted(table)),
        )
        pages = int(found[0]["pages"])
        size = -(-pages // parts)
        if size < 2:
            return [None]
        starts = list(range(0, pages, size))
        bounds = [f"ctid >= '({start},0)'::tid" for start in starts]
        ends = [f" AND ctid < '({start},0)'::tid" for start in starts[1:]]
        # The last one is open: the table may have grown.
        return [f"{low}{high}" for low, high in zip(bounds, [*ends, ""], strict=True)]


def quoted(table: TableName) -> str:
    """A table's name as PostgreSQL quotes it."""
    schema = table.namespace.rpartition(DATABASE_SEPARATOR)[2]
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table.table))


@contextmanager
def snapshot_of(spark: SparkSession, address: Address) -> Iterator[Snapshot]:
    """Take a snapshot of a database, and hold it.

    Raises:
        ConfigError: the driver can't be fetched.
        SourceError: the database can't be reached, or refuses the user.
    """
    add_postgresql(spark)
    connection = _connect(spark, address)
    try:
        connection.setAutoCommit(False)
        statement = connection.createStatement()
        statement.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # The place in the WAL is asked for behind the snapshot: each commit in it is before that.
        (taken,) = _ask(
            connection,
            "SELECT pg_export_snapshot() AS id, pg_current_snapshot()::text AS transactions, "
            "(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms, "
            "current_setting('server_version_num')::int AS version",
        )
        (place,) = _ask(
            connection,
            "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() "
            "ELSE pg_current_wal_insert_lsn() END - '0/0'::pg_lsn)::bigint AS lsn",
        )
        _, xmax, listed = taken["transactions"].split(":")
        in_progress = [int(number) for number in listed.split(",") if number]
        yield Snapshot(
            spark, address, connection, taken["id"], int(xmax), in_progress,
            int(place["lsn"]), int(taken["ms"]), int(taken["version"]),
        )  # fmt: skip
    except Py4JJavaError as error:
        raise SourceError(f"{address}: {root_cause(error)}") from error
    finally:
        connection.close()


def _connect(spark: SparkSession, address: Address) -> Any:
    """Open a connection with the driver that was added to the session."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    loader = session.sharedState().jarClassLoader()
    driver = loader.loadClass(_DRIVER).newInstance()
    properties = jvm.java.util.Properties()
    for name, value in address.properties.items():
        properties.setProperty(name, value)
    try:
        return driver.connect(address.jdbc_url, properties)
    except Py4JJavaError as error:
        raise SourceError(f"{address}: {root_cause(error)}") from error


def _ask(connection: Any, statement: str, *texts: str) -> list[dict[str, Any]]:
    prepared = connection.prepareStatement(statement)
    try:
        for number, text in enumerate(texts, 1):
            prepared.setString(number, text)
        rows, found = prepared.executeQuery(), []
        names = rows.getMetaData()
        listed = [names.getColumnLabel(n + 1) for n in range(names.getColumnCount())]
        while rows.next():
            found.append({name: rows.getObject(n) for n, name in enumerate(listed, 1)})
        return found
    finally:
        prepared.close()
