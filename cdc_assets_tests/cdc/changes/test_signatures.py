"""`discover` tries a format's reader only where one of its signatures occurs."""

from __future__ import annotations

import os
from functools import reduce
from typing import Any

import pytest

from cdc_assets.cdc.config import FORMATS as NAMES
from cdc_assets.cdc.envelopes.formats import FORMATS
from cdc_assets_tests import fuzz_run, model

SEED = int(os.environ.get("CDC_SEED", "1"))


def member(document: Any, path: str) -> Any:
    """The value at a path of names, None where there is none."""
    return reduce(
        lambda value, name: value.get(name) if isinstance(value, dict) else None,
        path.split("."),
        document,
    )


def test_the_formats_of_the_configuration_are_those_that_are_read() -> None:
    assert set(NAMES) == set(FORMATS)


@pytest.mark.parametrize(
    "fuzzed",
    [
        *fuzz_run.fuzzed_sources(4_000, SEED),
        *(
            pytest.param(source, marks=pytest.mark.cases)
            for source in fuzz_run.public_sources(16_000, SEED)
        ),
    ],
    ids=lambda fuzzed: fuzzed.label,
)
def test_each_row_event_that_the_model_reads_has_a_signature_of_its_format(
    fuzzed: fuzz_run.FuzzedSource,
) -> None:
    rows = [
        found.record.value
        for of_day in model.classify(fuzzed.options(), fuzzed.as_json).values()
        for found in of_day
        if found.destination == "changes" and found.source_op and found.record.value
    ]
    assert len(rows) > 100
    with model.deep_recursion():  # some records are nested deeper than Python's limit
        for value in rows:
            document = model.parse_json(value)
            found = [
                all(member(document, path) is not None for path in members)
                for members in FORMATS[fuzzed.format].signatures
            ]
            assert any(found), value[:200]
