"""Hostile events through all stages (mutations.py, encoded_mutations.py, fuzz_run.py).

``CDC_FUZZ_RECORDS=100000 CDC_SEED=7 pytest -m long cdc_assets_tests/pipeline/test_fuzz.py`` goes
further and elsewhere, as ``python -m cdc_assets_tests.fuzz_run`` does.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cdc_assets_tests import encoded_mutations, fuzz_run, mutations
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.encoded_mutations import EncodedMutator, schemas_by_id
from cdc_assets_tests.mutations import MUTATIONS, Mutator
from cdc_assets_tests.registries import Schemas

RECORDS = int(os.environ.get("CDC_FUZZ_RECORDS", "3360"))
SEED = int(os.environ.get("CDC_SEED", "1"))
GOOD = [
    ev.updated({"id": 1, "name": "Ann", "n": 5}, {"id": 1, "name": "A", "n": 4}),
    ev.created({"id": 1, "name": "Ann"}, types={"id": "int64", "name": "string"}),
    ev.lindorm_updated({"id": 1, "name": "A"}, {"id": 1, "name": "Ann"}),
    ev.dataworks_updated({"id": 1, "name": "A"}, {"id": 1, "name": "Ann"}),
    ev.flattened(ev.created({"id": 1, "name": "Ann"})),
    ev.maxwell_updated({"id": 1, "name": "A"}, {"id": 1, "name": "Ann"}),
    ev.ogg_updated({"id": 1, "name": "A"}, {"id": 1, "name": "Ann"}),
]


def test_the_same_seed_lands_the_same_records() -> None:
    one, two, other = (fuzz_run.fuzzed_sources(500, seed) for seed in (SEED, SEED, SEED + 1))
    assert one == two
    assert one != other


def test_what_lands_of_the_own_events_is_the_same_beside_public_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = tmp_path / "public"
    public.mkdir()
    monkeypatch.setattr(fuzz_run, "CASES", tmp_path)
    alone = fuzz_run.fuzzed_sources(500, SEED)
    assert fuzz_run.public_sources(500, SEED) == []
    landing = {"topic": "t", "partition": 0, "offset": 0, "ts": 1, "key": None, "payload": "{}"}
    case = {"landing": landing, "expect": {"destination": "control"}}
    (public / "ogg.jsonl").write_text(json.dumps(case), "utf-8")
    assert [source.label for source in fuzz_run.public_sources(500, SEED)] == ["ogg, public"]
    assert fuzz_run.fuzzed_sources(500, SEED) == alone


@pytest.mark.parametrize("kind", MUTATIONS, ids=lambda kind: kind.__name__)
def test_every_mutation_changes_an_event_of_some_format(kind: mutations.Damage) -> None:
    others = {other.__name__ for other in MUTATIONS} - {kind.__name__}
    mutator = Mutator(Random(SEED), share=1, without=others)
    assert any(mutator(good) != [good] for _ in range(20) for good in GOOD)


@pytest.mark.parametrize("kind", encoded_mutations.MUTATIONS, ids=lambda kind: kind.__name__)
def test_every_mutation_changes_a_record_of_a_registry(kind: encoded_mutations.Damage) -> None:
    schemas = Schemas(first=100)
    good = [schemas.sent(event) for event in GOOD[:2]]
    by_id = schemas_by_id(schemas.by_id)
    mutator = EncodedMutator(Random(SEED), by_id, share=1, kinds={kind: 1})
    assert any(mutator(one) != [one] for _ in range(20) for one in good)


def test_an_unknown_mutation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got the mutations \['no_such'\]; known are"):
        Mutator(Random(SEED), without=["no_such"])


def test_json_that_python_cannot_hold_is_spelled_as_it_stands() -> None:
    raw = mutations.raw_json
    document = {"a": raw("1e400"), raw('"a"'): 1, "b": raw('"\\ud800"'), "c": raw("[[1]]")}
    assert mutations.json_bytes(document) == b'{"a":1e400,"a":1,"b":"\\ud800","c":[[1]]}'


def test_most_good_events_stay_so_that_tables_fill() -> None:
    rng = Random(SEED)
    mutator = Mutator(rng)
    kept = Counter(mutator(good) == [good] for _ in range(200) for good in GOOD)
    assert kept[True] > kept[False] > 100
    assert all(json.loads(good.value or b"") for good in GOOD)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "sources_of",
    [
        pytest.param(fuzz_run.fuzzed_sources, id="own_events"),
        pytest.param(fuzz_run.public_sources, id="public_events", marks=pytest.mark.cases),
    ],
)
def test_hostile_events_stop_no_stage_and_tables_are_what_the_model_says(
    lake_of: LakeOf,
    tmp_path: Path,
    sources_of: Callable[[int, int], list[fuzz_run.FuzzedSource]],
) -> None:
    sources = sources_of(RECORDS, SEED)
    report = fuzz_run.run(lake_of, tmp_path, sources, print)
    assert not report.failures, "\n\n".join(report.failures)
    assert not report.differences, "\n\n".join(report.differences)
    assert set(report.landed) == {"changes", "control", "quarantine"}
    assert report.compared >= len(sources)
