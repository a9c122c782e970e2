"""What changed in a table between the ends of two days, read with PyIceberg.

A day is a tag, so that two of them say exactly what the table was, however the days were made:
late, again, or rewritten by maintenance. Files that both have are not read; of a file that lost
rows between them, only those rows are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import DELETED_AT, Config, is_reserved
from cdc_assets.cdc.lake.json_values import json_rows, plain_texts, python_values
from cdc_assets.cdc.lake.metadata import table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import missing_table, open_table, readable_files
from cdc_assets.cdc.lake.rows import key_columns, snapshot_at, sorted_rows
from cdc_assets.cdc.lake.tables import LakeTable, find_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table


def read_diff(config: Config, source: str, table: str, first: date, last: date) -> pa.Table:
    """What changed in a state table from the end of one day to the end of another.

    A row that is as it was is left out, whatever happened to it in between.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: `public.customers`.
        first: at the end of this day it was as `before` says.
        last: at the end of this day it is as `after` says; it may be the earlier of the two.

    Returns:
        `key` (a struct, sorted; not of tables without a key), `op` (c, u, d), `before` and
        `after`, structs of the table's own columns, null where there is no row. Without a key, a
        row that is there more or less often than before is listed as often, and no op is u.

    Raises:
        UnknownTableError: there is no such table.
        MissingTableError: nothing of it was made yet.
        MissingDayError: one of the days was not made, or has expired.
        LakeError: the catalog or a file can't be read.
    """
    rows, _, _ = diff_of(config, find_table(config, table, source), first, last)
    return rows


def diff_of(
    config: Config, table: LakeTable, first: date | None = None, last: date | None = None
) -> tuple[pa.Table, date, date]:
    """As :func:`read_diff`, of a state table already found, with the days that were compared.

    Without `last` it is the newest day, without `first` the one before `last`.
    """
    opened = open_table(config, table)
    state = table_state(opened)
    if not state.tags:
        raise missing_table(table)
    last = last or max(state.tags)
    first = first or last - timedelta(days=1)
    before, after = (snapshot_at(config, table, state, day) for day in (first, last))
    key = key_columns(config, table, state)
    with readable_files(table):
        rows = _Difference(opened, before, after).rows()
    # A key that no record has carried yet is of no column, and its table has no row.
    has_key = bool(key) and set(key) <= set(rows[0].column_names)
    return (_changed_by_key(*rows, key) if has_key else _changed(*rows)), first, last


@dataclass(frozen=True)
class _Difference:
    """The rows in which the files of two snapshots differ."""

    table: Table
    before: int
    after: int

    def rows(self) -> tuple[pa.Table, pa.Table]:
        """Rows that only one of the snapshots has, and rows of files that were written anew."""
        import pyarrow as pa
        from pyiceberg.table import FileScanTask

        schema = self._schema()
        snapshots = (self.before, self.after)
        before, after = (self._files(snapshot) for snapshot in snapshots)
        both = before.keys() & after.keys()
        found = [
            _in_types_of(
                schema,
                self._read(
                    self._with_fields_of(schema, snapshot),
                    [task for path, task in files.items() if path not in both],
                ),
            )
            for snapshot, files in zip(snapshots, (before, after), strict=True)
        ]
        changed = [p for p in sorted(both) if before[p].delete_files != after[p].delete_files]
        gone = [self._deleted([files[p] for p in changed]) for files in (before, after)]
        for path in changed:
            whole = self._read(schema, [FileScanTask(before[path].file)])
            for side, (here, there) in enumerate((gone, gone[::-1])):
                rows = _take(whole, sorted(there[path] - here[path]))
                found[side] = pa.concat_tables([found[side], rows], promote_options="permissive")
        return _without_deleted(found[0]), _without_deleted(found[1])

    def _schema(self) -> Schema:
        """The columns of the later snapshot, without those that are added to the source's.

        But that of deleted rows, which are none.
        """
        from pyiceberg.schema import Schema

        numbers = [self.table.snapshot_by_id(n) for n in (self.before, self.after)]
        ids = [s.schema_id for s in numbers if s is not None and s.schema_id is not None]
        fields = self.table.schemas()[max(ids)].fields
        return Schema(*(f for f in fields if f.name == DELETED_AT or not is_reserved(f.name)))

    def _with_fields_of(self, schema: Schema, snapshot: int) -> Schema:
        """The columns, each by the field that a snapshot has under its name (R5)."""
        from pyiceberg.schema import Schema

        known = self.table.snapshot_by_id(snapshot)
        if known is None or known.schema_id is None:
            return schema
        own = {field.name: field for field in self.table.schemas()[known.schema_id].fields}
        ids = {field.field_id for field in own.values()}
        return Schema(
            *(
                field if field.field_id in ids else own.get(field.name, field)
                for field in schema.fields
            )
        )

    def _files(self, snapshot: int) -> dict[str, FileScanTask]:
        return {t.file.file_path: t for t in self.table.scan(snapshot_id=snapshot).plan_files()}

    def _deleted(self, tasks: Sequence[FileScanTask]) -> dict[str, set[int]]:
        """The positions of the rows that are gone from each file; each delete file is read once.

        Tables of the lake have Iceberg's format 2, in which files of Parquet say them.
        """
        import pyarrow.parquet as pq

        gone: dict[str, set[int]] = {task.file.file_path: set() for task in tasks}
        for path in sorted({file.file_path for task in tasks for file in task.delete_files}):
            with self.table.io.new_input(path).open() as data:
                rows = pq.read_table(data, filters=[("file_path", "in", list(gone))])
            pairs = zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True)
            for file, position in pairs:
                gone[file].add(position)
        return gone

    def _read(self, schema: Schema, tasks: Sequence[FileScanTask]) -> pa.Table:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self.table.metadata, self.table.io, schema, AlwaysTrue())
        return scan.to_table(tasks)


def _without_deleted(rows: pa.Table) -> pa.Table:
    """Rows without deleted ones that a table keeps."""
    import pyarrow.compute as pc

    if DELETED_AT not in rows.column_names:
        return rows
    return rows.filter(pc.is_null(rows[DELETED_AT])).drop_columns([DELETED_AT])


def _in_types_of(schema: Schema, rows: pa.Table) -> pa.Table:
    """Rows in the types of some columns: those that became another field are their texts (R5)."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    for n, field in enumerate(wanted):
        column = rows.column(field.name)
        if pa.types.is_large_string(column.type) or column.type == field.type:
            continue
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = pa.array(plain_texts(column), field.type)
            rows = rows.set_column(n, field.name, texts)
        elif pa.types.is_date(column.type):
            rows = rows.set_column(n, field.name, column.cast(field.type))
    return rows


def _changed_by_key(before: pa.Table, after: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys whose rows differ."""
    left, right = ({k: n for n, k in enumerate(_keys(rows, key))} for rows in (before, after))
    both = [k for k in left if k in right]
    pairs = [left[k] for k in both], [right[k] for k in both]
    is_same = _same_rows(_take(before, pairs[0]), _take(after, pairs[1]))
    changes: list[tuple[str, int | None, int | None]] = [
        ("u", left[k], right[k]) for k, same in zip(both, is_same, strict=True) if not same
    ]
    changes += [("d", n, None) for k, n in left.items() if k not in right]
    changes += [("c", None, n) for k, n in right.items() if k not in left]
    return _listed(changes, before, after, key)


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(python_values(rows[name]) for name in key), strict=True)


def _same_rows(before: pa.Table, after: pa.Table) -> list[bool]:
    """Whether the rows at the same place have the same values."""
    same = [True] * before.num_rows
    for name in before.column_names:
        values = zip(_values(before, name), _values(after, name), strict=True)
        same = [known and left == right for known, (left, right) in zip(same, values, strict=True)]
    return same


def _values(rows: pa.Table, name: str) -> Iterator[Any]:
    """The values of a column as JSON's, in which a NaN equals another one."""
    return (row[name] for row in json_rows(rows.select([name])))


def _changed(before: pa.Table, after: pa.Table) -> pa.Table:
    """The rows of a table without a key that are there more or less often."""
    left, right = ([_text(row) for row in json_rows(rows)] for rows in (before, after))
    gone, new = Counter(left) - Counter(right), Counter(right) - Counter(left)
    changes: list[tuple[str, int | None, int | None]] = []
    changes += [("d", n, None) for n in _numbers(left, gone)]
    changes += [("c", None, n) for n in _numbers(right, new)]
    return _listed(changes, before, after, [])


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _numbers(rows: Sequence[str], wanted: Counter[str]) -> Iterator[int]:
    left = wanted.copy()
    for n, row in enumerate(rows):
        if left[row] > 0:
            left[row] -= 1
            yield n


def _listed(
    changes: Sequence[tuple[str, int | None, int | None]],
    before: pa.Table,
    after: pa.Table,
    key: Sequence[str],
) -> pa.Table:
    """Changes, each an op and the numbers of its rows, as :func:`read_diff` returns them."""
    import pyarrow as pa

    ops, lefts, rights = zip(*changes, strict=True) if changes else ((), (), ())
    columns = {
        "op": pa.array(ops, pa.string()),
        "before": _structs(before, lefts),
        "after": _structs(after, rights),
    }
    if not key:
        return pa.table(columns)
    held = pa.concat_tables([before.select(key), after.select(key)], promote_options="permissive")
    at = [
        left if right is None else before.num_rows + right
        for left, right in zip(lefts, rights, strict=True)
    ]
    names = [f"k{n}" for n in range(len(key))]
    keys = _take(held, at).rename_columns(names)
    numbered = keys.append_column("n", pa.array(range(len(at)), pa.int64()))
    return pa.table({"key": _structs(held, at), **columns}).take(sorted_rows(numbered, names)["n"])


def _structs(rows: pa.Table, numbers: Sequence[int | None]) -> pa.Array:
    """Rows by their numbers as structs; null for none."""
    import pyarrow as pa

    taken = _take(rows, numbers).combine_chunks()
    fields = [pa.field(f.name, f.type) for f in rows.schema]
    arrays = [
        column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for column in taken.columns
    ]
    is_none = pa.array([n is None for n in numbers], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=is_none)


def _take(rows: pa.Table, numbers: Sequence[int | None]) -> pa.Table:
    """Rows by their numbers, of nulls for none."""
    import pyarrow as pa

    return rows.take(pa.array(numbers, pa.int64()))
