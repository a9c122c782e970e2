"""A random, seeded workload: transactions side by side, rolled back, killed by DDL and TRUNCATE."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import Connection, sql

from cdc_assets_tests.e2e.stack import Postgres
from cdc_assets_tests.e2e.tables import SETUP, SHAPED, Column, Table

_SIDE_BY_SIDE = 3  # transactions that are open at once


class Workload:
    """Writes to some tables; the same seed writes the same."""

    def __init__(self, postgres: Postgres, tables: Sequence[Table], seed: int) -> None:
        self.rng = random.Random(seed)
        self.tables = [t for t in tables if t.ops]
        self._all = tables
        self._dropped: set[tuple[str, str]] = {("shaped", "added")}
        self._db = postgres.connect()
        self._side = [postgres.connect(autocommit=False) for _ in range(_SIDE_BY_SIDE)]

    def close(self) -> None:
        for db in (self._db, *self._side):
            db.close()

    def create(self) -> None:
        self._db.execute(SETUP.encode())
        for table in self._all:
            table.create(self._db)

    def run(self, transactions: int, rare: bool = True) -> None:
        """Some transactions; when it returns, all are committed or rolled back.

        Without `rare`, rows change and nothing else: PostgreSQL's documentation warns that to a
        snapshot taken before, a table that was truncated or rewritten by ALTER TABLE seems empty.
        """
        open_ones: dict[int, int] = {}
        for _ in range(transactions):
            lane = self.rng.randrange(_SIDE_BY_SIDE)
            db = self._side[lane]
            for _ in range(self.rng.randint(1, 4)):
                self._change(db, lane)
            open_ones[lane] = open_ones.get(lane, 0) + 1
            if self.rng.random() < 0.5:
                self._end(db)
                open_ones.pop(lane)
            if rare and self.rng.random() < 0.04:
                self._end_all()
                open_ones.clear()
                self._rarely()
        self._end_all()

    def _end_all(self) -> None:
        for db in self._side:
            self._end(db)

    def _end(self, db: Connection[Any]) -> None:
        db.rollback() if self.rng.random() < 0.15 else db.commit()

    def _columns(self, table: Table) -> list[Column]:
        return [c for c in table.columns if (table.name, c.name) not in self._dropped]

    def _change(self, db: Connection[Any], lane: int) -> None:
        """One statement. A lane has rows of its own, so that no lane waits for another."""
        table = self.rng.choice(self.tables)
        ops = table.ops if self.rng.random() < 0.5 else "i"
        op = self.rng.choice(ops)
        name = sql.Identifier(table.name)
        if op == "i":
            rows = [self._row(table, lane) for _ in range(self.rng.choice([1, 1, 3]))]
            self._insert(db, table, rows)
            return
        where, values = self._one_of(db, table, lane)
        if where is None:
            return
        if op == "d":
            db.execute(sql.SQL("DELETE FROM {} WHERE {}").format(name, where), values)
            return
        if op == "k":
            changed = [c for c in table.columns if c.name in table.key]
            row = self._row(table, lane)
            taken = sql.SQL(" AND ").join(_is(c) for c in changed)
            key = [row[c.name] for c in changed]
            if db.execute(sql.SQL("SELECT 1 FROM {} WHERE {}").format(name, taken), key).fetchone():
                return
        else:
            free = [c for c in self._columns(table) if c.name not in table.key]
            changed = self.rng.sample(free, self.rng.randint(1, len(free)))
            row = self._row(table, lane)
        sets = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(c.name), _cast(c)) for c in changed
        )
        db.execute(
            sql.SQL("UPDATE {} SET {} WHERE {}").format(name, sets, where),
            [*(row[c.name] for c in changed), *values],
        )

    def _row(self, table: Table, lane: int) -> dict[str, str | None]:
        """A row; its first number or text belongs to the lane."""
        row = {c.name: c.make(self.rng) for c in self._columns(table)}
        own = next((k for k in ("id", "code", "n") if k in row), None)
        if own is not None:
            row[own] = str(int(row[own] or 0) // _SIDE_BY_SIDE * _SIDE_BY_SIDE + lane)
        return row

    def _insert(self, db: Connection[Any], table: Table, rows: list[dict[str, str | None]]) -> None:
        columns = self._columns(table)
        listed = sql.SQL(", ").join(sql.Identifier(c.name) for c in columns)
        one = sql.SQL("({})").format(sql.SQL(", ").join(_cast(c) for c in columns))
        values = [row[c.name] for row in rows for c in columns]
        db.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES {} ON CONFLICT DO NOTHING").format(
                sql.Identifier(table.name), listed, sql.SQL(", ").join([one] * len(rows))
            ),
            values,
        )

    def _one_of(
        self, db: Connection[Any], table: Table, lane: int
    ) -> tuple[sql.Composable | None, list[Any]]:
        """A condition on a row that the lane may change; without key it may hold of several."""
        own = next(k for k in ("id", "code", "n") if k in {c.name for c in table.columns})
        by = [c for c in table.columns if c.name in (table.key or (own,))]
        listed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c.name)) for c in by)
        found = db.execute(
            sql.SQL("SELECT {} FROM {} WHERE mod({}::int + 3000000, 3) = {} ORDER BY 1").format(
                listed, sql.Identifier(table.name), sql.Identifier(own), lane
            )
        ).fetchall()
        if not found:
            return None, []
        return sql.SQL(" AND ").join(_is(c) for c in by), list(self.rng.choice(found))

    # --- between transactions

    def run_rare(self) -> None:
        """Each thing that happens rarely, once, and messages in and out of a transaction."""
        for happen in self._rare():
            happen()
        for inside in (True, False):
            self._db.execute("SELECT pg_logical_emit_message(%s, 'prefix', 'foo')", [inside])

    def _rare(self) -> tuple[Callable[[], None], ...]:
        return self._truncate, self._copy, self._message, self._reshape, self._key_swap

    def _rarely(self) -> None:
        self.rng.choice(self._rare())()

    def _truncate(self) -> None:
        name = self.rng.choice(["orders", "bag", "audit_log", "full_identity"])
        self._db.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(name)))

    def _copy(self) -> None:
        with (
            self._db.cursor() as cursor,
            cursor.copy("COPY audit_log (n, note) FROM STDIN") as copy,
        ):
            for _ in range(20):
                copy.write_row((self.rng.randrange(5), self.rng.choice(["copied", None])))

    def _message(self) -> None:
        inside = self.rng.random() < 0.5
        content = self.rng.choice(["foo", "ünï", ""])
        self._db.execute("SELECT pg_logical_emit_message(%s, 'prefix', %s)", [inside, content])

    def _reshape(self) -> None:
        """Add, drop and widen columns of one table."""
        added, dropped = ("shaped", "added"), ("shaped", "dropped")
        if added in self._dropped:
            self._db.execute("ALTER TABLE shaped ADD COLUMN added text")
            self._dropped.discard(added)
            self._db.execute("ALTER TABLE shaped ALTER n TYPE bigint")
        elif dropped not in self._dropped:
            self._db.execute("ALTER TABLE shaped ALTER amount TYPE numeric(12,2)")
            self._db.execute("ALTER TABLE shaped DROP COLUMN dropped")
            self._dropped.add(dropped)
        assert SHAPED in self.tables

    def _key_swap(self) -> None:
        """Two rows change keys with each other in one transaction."""
        with self._db.transaction():
            self._db.execute("UPDATE orders SET id = 1000 WHERE id = 1")
            self._db.execute("UPDATE orders SET id = 1 WHERE id = 2")
            self._db.execute("UPDATE orders SET id = 2 WHERE id = 1000")


def _cast(column: Column) -> sql.Composable:
    kind = column.kind.removesuffix(" NOT NULL")
    return sql.SQL("%s::text::{}").format(sql.SQL(kind))


def _is(column: Column) -> sql.Composable:
    return sql.SQL("{} = {}").format(sql.Identifier(column.name), _cast(column))
