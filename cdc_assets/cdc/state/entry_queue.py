"""The fold of a key's entries, as SQL text (FORMATS O16).

Within a transaction of a database that checks keys at its end a key holds a queue: the row that
stood there before, then each row that arrives. An update, a delete and a row that leaves take the
row of it that their `before` names.
"""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Sql, case, literals

# What an entry does at its key: a row that stood there, a snapshot read, a row that arrives, an
# update, a delete, a row that leaves for another key.
STOOD, READ, ARRIVES, UPDATES = "stood", "read", "arrives", "updates"
DELETED, LEAVES = "deleted", "leaves"
TRUNCATED = "truncated"  # it stands alone, and leaves no row
REMOVING = (DELETED, LEAVES, TRUNCATED)
# The number of an entry in the order of its key; one without a place is the last. A row may stand
# from where another one left on, which hid it.
NUMBER = (
    "CAST(row_number() OVER (PARTITION BY k ORDER BY pos NULLS LAST, "
    f"kind NOT IN ({literals(REMOVING)}), kind <> '{STOOD}') - 1 AS int)"
)


def fold_entries(es: Sql, is_key_alone: bool) -> Sql:
    """Fold the entries `es` of a key in their order.

    Args:
        is_key_alone: rows have no other columns than the key's.

    Returns:
        STRUCT<q ARRAY<INT>, stood BOOLEAN, tx STRING, taken ARRAY<INT>, tops ARRAY<INT>>: the
        queue, as numbers of entries, whether its first stood there before the transaction, and of
        each entry the number of the one whose row it took, and of the one whose row is the key's
        before it (-1: none).
    """
    start = (
        f"named_struct('q', {_NONE}, 'stood', false, 'tx', CAST(NULL AS string), "
        f"'taken', {_NONE}, 'tops', {_NONE})"
    )
    return f"aggregate({es}, {start}, (a, e) -> {_step(es, is_key_alone)})"


_NONE = "CAST(array() AS array<int>)"
_ALONE = "array(e.n)"
_NEWEST = "coalesce(try_element_at(a.q, -1), -1)"


def _step(es: Sql, is_key_alone: bool) -> Sql:
    """What the queue `a` is after an entry `e`."""
    arrives = _let(_before(), "s", _after(f"concat(s.q, {_ALONE})", "s.stood", "e.tx", _NEWEST))
    taken = _let(
        f"named_struct('q', s.q, 'stood', s.stood, 'equal', {_equal(es, is_key_alone)}, "
        f"'sure', {_is_sure(es)})",
        "t",
        _let(
            f"named_struct('q', t.q, 'stood', t.stood, 'sure', t.sure, 'at', {_TAKEN_AT})",
            "u",
            case((f"e.kind = '{UPDATES}'", _updated()), otherwise=_without_taken()),
        ),
    )
    no_tx = "CAST(NULL AS string)"
    return case(
        (f"e.kind IN ({literals((STOOD, READ))})", _after(_ALONE, "true", no_tx, _NEWEST)),
        ("NOT coalesce(e.is_late_checked, false)", _last_decides()),
        (f"e.kind = '{ARRIVES}'", arrives),
        otherwise=_let(_before(), "s", taken),
    )


def _before() -> Sql:
    """The queue before the entry: a transaction begins with the row that the last one left."""
    is_new = "(e.tx IS NULL OR NOT (e.tx <=> a.tx))"
    queue = case(
        ("size(a.q) = 0", _NONE), (is_new, "array(try_element_at(a.q, -1))"), otherwise="a.q"
    )
    stood = f"CASE WHEN {is_new} THEN size(a.q) > 0 ELSE a.stood END"
    return f"named_struct('q', {queue}, 'stood', {stood})"


def _equal(es: Sql, is_key_alone: bool) -> Sql:
    """The places in the queue of rows that the entry's `before` names."""
    matches = (
        f"forall(e.was, b -> NOT exists(get({es}, i).now, c -> c.column = b.column "
        "AND NOT (c.value <=> b.value)))"
    )
    # What shares no column with a row does not name it.
    shares = f"exists(e.was, b -> exists(get({es}, i).now, c -> c.column = b.column))"
    named = "e.was_names IS NOT NULL" if is_key_alone else shares
    found = f"CASE WHEN {named} AND {matches} THEN at END"
    return f"filter(transform(s.q, (i, at) -> {found}), at -> at IS NOT NULL)"


def _is_sure(es: Sql) -> Sql:
    """Has the entry's `before` every column of the row that it is to be?"""
    arrived = f"get({es}, try_element_at(s.q, -1))"
    has_all = (
        f"CASE WHEN e.kind = '{UPDATES}' THEN size(array_except(e.names, e.was_names)) = 0 "
        f"WHEN size(s.q) = 0 OR {arrived}.kind = '{STOOD}' THEN true "
        f"ELSE size(array_except({arrived}.names, e.was_names)) = 0 END"
    )
    return f"coalesce(e.is_whole AND {has_all}, false)"


# The place of the row that the entry takes; -1: none is known.
_TAKEN_AT = case(("size(t.equal) > 0", "t.equal[0]"), ("t.sure AND t.stood", "0"), otherwise="-1")


def _updated() -> Sql:
    """The queue with the updated row in the place of the one that was taken."""
    put = f"concat(slice(u.q, 1, {{at}}), {_ALONE}, slice(u.q, {{at}} + 2, size(u.q)))"
    at_end = put.format(at="(size(u.q) - 1)")
    return case(
        (
            "u.at < 0 AND (u.sure OR size(u.q) = 0)",
            _after(f"concat({_ALONE}, u.q)", "true", "e.tx", "-1"),
        ),
        ("u.at < 0", _after(at_end, "u.stood", "e.tx", "try_element_at(u.q, -1)")),
        otherwise=_after(put.format(at="u.at"), "u.stood", "e.tx", "get(u.q, u.at)"),
    )


def _without_taken() -> Sql:
    """The queue without the row that was taken."""
    at = "greatest(u.at, 0)"
    return case(
        (
            f"u.at >= 0 OR (e.kind = '{LEAVES}' AND size(u.q) > 0 AND NOT u.sure)",
            _after(
                f"concat(slice(u.q, 1, {at}), slice(u.q, {at} + 2, size(u.q)))",
                f"u.stood AND {at} > 0",
                "e.tx",
                f"get(u.q, {at})",
            ),
        ),
        ("NOT u.sure", _after(_NONE, "false", "e.tx", "coalesce(try_element_at(u.q, -1), -1)")),
        otherwise=_after("u.q", "u.stood", "e.tx", "-1"),
    )


def _last_decides() -> Sql:
    """What the queue is after an entry that stands alone."""
    newest = "coalesce(try_element_at(a.q, -1), -1)"
    removes = f"e.kind IN ({literals(REMOVING)})"
    queue = case((removes, "CAST(array() AS array<int>)"), otherwise="array(e.n)")
    return _after(queue, f"NOT {removes}", "CAST(NULL AS string)", newest)


def _after(queue: Sql, stood: Sql, tx: Sql, took: Sql) -> Sql:
    """The queue, and the number of the entry whose row was taken, added to those before."""
    return (
        f"named_struct('q', {queue}, 'stood', {stood}, 'tx', {tx}, "
        f"'taken', concat(a.taken, array({took})), 'tops', concat(a.tops, array({_NEWEST})))"
    )


def _let(value: Sql, name: str, body: Sql) -> Sql:
    """`body`, in which `name` is a value that is computed once."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"
