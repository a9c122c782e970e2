"""The reference model against simulated databases: the rules of order (O4, O6, O8, O15, O16).

A queue connector's table is right amid a redelivery, too; any other once that has caught up.
`CDC_ORDER_HISTORIES` is how many histories of each shape are tried.
"""

from __future__ import annotations

import os
from operator import itemgetter

import pytest

from cdc_assets_tests.model import tables
from cdc_assets_tests.order_simulation import SHAPES, history

by_id = itemgetter("id")
HISTORIES = int(os.environ.get("CDC_ORDER_HISTORIES", "25"))


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
def test_the_table_is_the_databases_at_every_end_of_a_transaction(name: str) -> None:
    shape, wrong = SHAPES[name], []
    for seed in range(HISTORIES):
        landed, truth = history(name, seed)
        rows = tables(shape.source, landed)
        wrong += [
            (seed, day.isoformat())
            for day, expected in truth.items()
            if sorted(rows[day][shape.table_name], key=by_id) != expected
        ]
    assert not wrong, f"{name}: {len({seed for seed, _ in wrong})} of {HISTORIES}: {wrong[:5]}"


def test_a_history_is_the_same_for_the_same_seed() -> None:
    assert history("oracle", 3) == history("oracle", 3)
    assert history("oracle", 3) != history("oracle", 4)
