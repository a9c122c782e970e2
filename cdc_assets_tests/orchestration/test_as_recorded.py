"""Days that are up to date and as Dagster has recorded them are recorded again without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import AUDIT
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.execution import progress
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import land, make_lag, source_config
from cdc_assets_tests.shared_spark import SharedSpark

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
LANDING, CHANGES, LAG = (dg.AssetKey(["rec", stage]) for stage in ("landing", "changes", "lag"))
ITEMS = dg.AssetKey(["rec", "public", "items"])
STEPS = {"rec__landing", "rec__changes", "rec__tables", "rec__lag"}


class CountingSpark(SharedSpark):
    """Says which steps asked for Spark."""

    asked: ClassVar[int] = 0

    def lake(self) -> Lake:
        CountingSpark.asked += 1
        return super().lake()


class Runs:
    """Runs of one source with records of their own."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance, folder: Path) -> None:
        self.lake, self.instance, self.folder = lake, instance, folder
        self.asked = 0

    def run(self, days: Sequence[date] = DAYS, **tags: str) -> dg.ExecuteInProcessResult:
        """A run over all assets; `asked` is how many of its four steps started Spark."""
        SharedSpark.shared = self.lake
        CountingSpark.asked = 0
        result = dg.materialize(
            build_assets("rec", self.lake.config),
            instance=self.instance,
            resources={"spark": CountingSpark()},
            tags={
                "dagster/asset_partition_range_start": str(days[0]),
                "dagster/asset_partition_range_end": str(days[-1]),
                **tags,
            },
            raise_on_error=False,
        )
        self.asked = CountingSpark.asked
        return result

    def with_settings(self, **settings: Any) -> Runs:
        """The same lake and records with other settings of the source."""
        config = self.lake.config
        source = config.sources["rec"].model_copy(update=settings)
        changed = config.model_copy(update={"sources": {"rec": source}})
        return Runs(Lake(self.lake.spark, changed), self.instance, self.folder)

    def newest(self, key: dg.AssetKey, day: date) -> dict[str, Any]:
        """The newest metadata of a day."""
        wanted = dg.AssetRecordsFilter(key, asset_partitions=[str(day)])
        (record,) = self.instance.fetch_materializations(wanted, limit=1).records
        assert record.asset_materialization is not None
        return dict(record.asset_materialization.metadata)


@pytest.fixture(scope="module")
def made(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Three days; one of the two tables starts on the second."""
    folder = tmp_path_factory.mktemp("landed")
    log = ev.PgLog("shop", "public", "items", types={"id": "int32", "name": "string"})
    log.create(id=1, name="a")
    log.next_day()
    log.update(id=1, name="b")
    log.landing.put(ev.raw(b"{'no': 'json'}", topic="shop.public.items"))
    log.next_day()
    log.create(id=2, name="c")
    ev.write_landing(folder, log.landed)
    tables = {
        "public.items": {"key": ["id"]},
        "public.later": {"key": ["id"], "start_date": str(DAYS[1])},
    }
    lake = lake_of({"rec": source_config(folder, tables=tables)})
    with dg.DagsterInstance.ephemeral() as instance:
        found = Runs(lake, instance, folder)
        found.run()
        assert found.asked == len(STEPS)
        yield found


@pytest.fixture
def runs(made: Runs) -> Runs:
    """All days as they are recorded, whatever another test did to them."""
    assert made.run().success
    return made


def evaluated(result: dg.ExecuteInProcessResult) -> dict[tuple[str, str, str | None], bool]:
    return {
        (e.asset_key.to_user_string(), e.check_name, e.partition): e.passed
        for e in result.get_asset_check_evaluations()
    }


def test_a_run_of_days_as_recorded_starts_no_spark_and_records_each_day(runs: Runs) -> None:
    before = {(key, day): runs.newest(key, day) for key in (LANDING, ITEMS, LAG) for day in DAYS}
    result = runs.run()
    assert result.success
    assert runs.asked == 0
    for (key, day), known in before.items():
        assert runs.newest(key, day) == {
            **known,
            "unchanged_since_last_made": dg.MetadataValue.bool(True),
        }
    made = [e for e in result.all_events if e.is_step_materialization and e.asset_key == ITEMS]
    assert [e.partition for e in made] == [str(day) for day in DAYS]
    later = dg.AssetKey(["rec", "public", "later"])
    made = [e for e in result.all_events if e.is_step_materialization and e.asset_key == later]
    assert [e.partition for e in made] == [str(day) for day in DAYS[1:]]


def test_the_verdicts_of_the_last_day_are_recorded_again_so_that_none_is_missing(
    runs: Runs,
) -> None:
    changed = runs.with_settings(lag_slo_ms=60_000)
    with_spark = evaluated(changed.run())
    assert changed.asked == len(STEPS)
    again = evaluated(changed.run())
    assert changed.asked == 0
    assert again == {at: passed for at, passed in with_spark.items() if at[2] == str(DAYS[-1])}
    second = changed.run(DAYS[:2])
    (bad,) = (e for e in second.get_asset_check_evaluations() if e.check_name == "records_readable")
    assert (bad.passed, bad.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert bad.metadata["reason_malformed_json"].value == 1
    assert bad.description


def _another_file(runs: Runs) -> None:
    more = ev.PgLog("shop", "public", "items", types={"id": "int32", "name": "string"})
    more.create(id=7, name="late")
    ev.write_landing(runs.folder / "more", more.landed)
    (file,) = (runs.folder / "more" / str(DAYS[0])).iterdir()
    file.rename(runs.folder / str(DAYS[0]) / "more.jsonl")


def _lag_made_elsewhere(runs: Runs) -> None:
    make_lag(runs.lake, "rec", [DAYS[1]], force=True)


def _main_left_behind(runs: Runs) -> None:
    identifier = runs.lake.state("rec", TableName.parse("public.items"))
    state = runs.lake.read_state(identifier)
    assert state is not None
    snapshots = runs.lake.handle(identifier).manageSnapshots()
    snapshots.setCurrentSnapshot(state.tags[DAYS[1]]).commit()


def _audit_failed(runs: Runs) -> None:
    runs.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=ITEMS,
            check_name="keys_unique",
            passed=False,
            metadata={AUDIT: "1 key is there twice"},
            partition=str(DAYS[-1]),
        )
    )


@pytest.mark.parametrize(
    ("happens", "asked"),
    [
        (_another_file, 4),
        (_lag_made_elsewhere, 1),
        (_main_left_behind, 1),
        (_audit_failed, 1),
    ],
)
def test_what_is_not_as_recorded_is_looked_at_by_spark(
    runs: Runs, happens: Callable[[Runs], None], asked: int
) -> None:
    happens(runs)
    result = runs.run()
    assert result.success
    assert runs.asked == asked
    assert evaluated(result)["rec/public/items", "keys_unique", str(DAYS[-1])]
    state = runs.lake.read_state(runs.lake.state("rec", TableName.parse("public.items")))
    assert state is not None
    assert state.refs["main"] == state.tags[DAYS[-1]]
    runs.run()
    assert runs.asked == 0


def test_a_day_before_that_landed_again_has_the_next_day_compared_anew(runs: Runs) -> None:
    land(runs.lake, "rec", DAYS[:1], force=True)
    result = runs.run(DAYS[1:2])
    assert runs.asked >= 1
    assert ("rec/landing", "offsets_contiguous", str(DAYS[1])) in evaluated(result)


def test_changed_settings_have_days_recorded_anew(runs: Runs) -> None:
    assert "sample" in runs.newest(ITEMS, DAYS[0])
    without = runs.with_settings(samples=False)
    assert without.run().success
    assert without.asked == len(STEPS)
    for day in DAYS:
        assert "sample" not in runs.newest(ITEMS, day)
        assert runs.newest(ITEMS, day)["dagster/row_count"].value


def test_a_run_says_which_days_stand_as_earlier_rules_made_them(runs: Runs) -> None:
    """Other settings are other rules, as a new version's are."""
    other = runs.with_settings(unavailable_value="another placeholder")
    told: list[progress.Step] = []
    with progress.listen(told.append):
        assert other.run(DAYS[-1:]).success
    (said,) = {step.text for step in told if step.stage == "changes" and "earlier" in step.text}
    assert f"2 days, {DAYS[0]} to {DAYS[1]}, stand as earlier rules made them" in said
    assert "1 days made again: the rules have changed" in said


def test_a_forced_run_and_one_of_the_open_day_start_spark(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run(**{"cdc/force": "true"})
    assert runs.asked == len(STEPS)
    runs.run()
    assert runs.asked == 0
    monkeypatch.setattr(Config, "is_open", lambda _, day: day == DAYS[-1])
    runs.run()
    assert runs.asked == len(STEPS)


def test_a_landing_folder_that_is_gone_is_said_by_the_step(runs: Runs) -> None:
    elsewhere = runs.folder.rename(runs.folder.with_name("elsewhere"))
    result = runs.run()
    elsewhere.rename(runs.folder)
    assert not result.success
    (failed,) = (e for e in result.all_events if e.is_step_failure)
    assert failed.step_key == "rec__landing"
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    assert "is missing; create it" in str(data.description)
