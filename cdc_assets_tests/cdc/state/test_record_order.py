"""The order of a row's names in a landed message of any format; no Spark."""

from __future__ import annotations

import pytest

from cdc_assets.cdc.state.record_order import order_in_message

WANTED = {"zone", "id", "city"}
MESSAGES = {
    "bare": '{"before": null, "after": {"zone": 1, "id": 2, "city": {"id": 1}}, "op": "c"}',
    "wrapped": '{"schema": {}, "payload": {"after": {"zone": 1, "x": 0, "id": 2, "city": 3}}}',
    "flat": '{"__op": "c", "zone": 1, "id": 2, "city": 3, "__deleted": "false"}',
    "dataworks": '{"payload": {"after": {"dataColumn": {"zone": 1, "id": 2, "city": 3}}}}',
    "source_has_the_names": (
        '{"source": {"city": 1, "id": 1, "zone": 1, "ts_ms": 1}, '
        '"after": {"zone": 1, "id": 2, "city": 3}}'
    ),
    "long_number": '{"after": {"zone": ' + "9" * 5_000 + ', "id": 2, "city": 1e999}}',
}


@pytest.mark.parametrize("form", MESSAGES)
def test_the_order_is_that_of_the_row_in_a_message_of_any_form(form: str) -> None:
    assert order_in_message(MESSAGES[form].encode(), WANTED) == ["zone", "id", "city"]


def test_a_row_may_have_a_part_of_the_names() -> None:
    assert order_in_message(b'{"after": {"id": 1, "x": 2, "city": 3}}', WANTED) == ["id", "city"]


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"null", b"7", b"[" * 100_000, b"{}"])
def test_what_can_not_be_read_has_no_order(value: bytes | None) -> None:
    assert order_in_message(value, WANTED) == []
