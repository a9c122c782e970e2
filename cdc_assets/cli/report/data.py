"""The figures of `cdc-assets report`: lag, changes, quarantine, sizes, seconds and checks of days.

The lake is read without Spark. Checks and the seconds of stages come from Dagster's records;
`Figures.no_records` says why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from cdc_assets import __version__
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES
from cdc_assets.cdc.errors import MissingTableError, first_line
from cdc_assets.cdc.lake.figures import lag_rows, record_counts, require_made, table_days
from cdc_assets.cdc.lake.metadata import made_days
from cdc_assets.cdc.lake.tables import derived_tables, own_table, state_tables

if TYPE_CHECKING:
    from cdc_assets.orchestration.runs.recorded_runs import Verdict

NEWEST_DAYS = 30  # without --from

Say = Callable[[str], None]


@dataclass(frozen=True)
class Count:
    """Records of a table on a landing day: `what` is an op or a quarantine reason.

    `table` is `<source>.<namespace>.<table>`, or `<source> (no table)` for records that could not
    be read so far.
    """

    day: date
    table: str
    what: str
    records: int


@dataclass(frozen=True)
class Size:
    """Rows and bytes of a table at the end of a day."""

    day: date
    table: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Seconds:
    """Seconds that making a day of a stage or table took."""

    day: date
    asset: str
    seconds: float


@dataclass
class Figures:
    """The figures of the page.

    `start` is the UTC hour in which the first day begins, `end` the end of the last one. Lag rows
    are rows of :func:`lag_rows` with a `table` as in :class:`Count`; the `hour` of `lag_hours` is
    an aware datetime.
    """

    made_at: datetime
    version: str
    asked: str
    timezone: str
    sources: list[str]
    days: list[date]
    start: datetime
    end: datetime
    open_days: list[date] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lag_slo_ms: dict[str, int | None] = field(default_factory=dict)
    lag_days: list[dict[str, Any]] = field(default_factory=list)
    lag_hours: list[dict[str, Any]] = field(default_factory=list)
    changes: list[Count] = field(default_factory=list)
    quarantine: list[Count] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    seconds: list[Seconds] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    no_records: str = ""

    def is_over_slo(self, row: Mapping[str, Any]) -> bool:
        """Whether the p95 capture lag of a table's day is above the source's `lag_slo_ms`."""
        slo = self.lag_slo_ms.get(row["source"])
        return row["kind"] == "capture" and slo is not None and row["p95_ms"] > slo


def gather(
    config: Config,
    source: str | None = None,
    first: date | None = None,
    last: date | None = None,
    say: Say = lambda text: None,
) -> Figures:
    """Read the figures of the made days from `first` to `last`.

    Args:
        config: cdc.yaml.
        source: only this source.
        first: first day [default: the 30th newest].
        last: last day [default: the newest].
        say: called with what is being read.

    Raises:
        MissingTableError: there is no lake yet, or nothing of these sources in it.
        LakeError: none of the days is made, or the catalog or a file can't be read.
    """
    asked = [source] if source else list(config.sources)
    made, notes = _made_days(config, asked)
    sources = list(made)
    require_made(config, "changes", sources, first, last)
    days, left_out = _chosen({day for days in made.values() for day in days}, first, last)
    if left_out:
        notes.append(
            f"{left_out} older made days are left out: without --from the newest {NEWEST_DAYS} "
            "days are shown."
        )
    figures = Figures(
        made_at=datetime.now(timezone.utc),
        version=__version__,
        asked=_asked(source, first, last),
        timezone=config.timezone,
        sources=sources,
        days=days,
        # In some time zones a day begins within a UTC hour; the page shows that hour whole.
        start=config.end_of(days[0] - timedelta(days=1)).replace(minute=0),
        end=config.end_of(days[-1]),
        open_days=[day for day in days if config.is_open(day)],
        notes=notes,
        lag_slo_ms={source: config.sources[source].lag_slo_ms for source in sources},
    )
    for made_source in sources:
        _read_source(config, made_source, figures, say)
    say("reading Dagster's records: checks and seconds")
    _read_records(config, figures)
    return figures


def _read_source(config: Config, source: str, figures: Figures, say: Say) -> None:
    say(f"reading {source}: lag, changes and quarantine of {len(figures.days)} days")
    _read_lag(config, source, figures)
    _read_counts(config, source, figures)
    say(f"reading {source}: {len(config.sources[source].tables)} tables")
    _read_tables(config, source, figures)


def _asked(source: str | None, first: date | None, last: date | None) -> str:
    days = f"{first or 'the first made day'} to {last or 'the newest made day'}"
    if first is None:
        days = f"the newest {NEWEST_DAYS} made days{f' up to {last}' if last else ''}"
    return f"{f'source {source}' if source else 'all sources'}, {days}"


def _made_days(config: Config, sources: Sequence[str]) -> tuple[dict[str, list[date]], list[str]]:
    """The made days of each source, and notes on sources that have none."""
    made: dict[str, list[date]] = {}
    missing: list[MissingTableError] = []
    for source in sources:
        try:
            made[source] = made_days(config, own_table(source, "changes"))
        except MissingTableError as error:
            missing.append(error)
    if not made:
        raise missing[0]
    return made, [f"{error}." for error in missing]


def _chosen(made: set[date], first: date | None, last: date | None) -> tuple[list[date], int]:
    days = sorted(d for d in made if (first is None or d >= first) and (last is None or d <= last))
    if first is not None:
        return days, 0
    return days[-NEWEST_DAYS:], max(0, len(days) - NEWEST_DAYS)


def _read_lag(config: Config, source: str, figures: Figures) -> None:
    first, last = figures.days[0], figures.days[-1]
    try:
        by_day = lag_rows(config, source, first, last)
        by_hour = lag_rows(config, source, first, last, hours=True)
    except MissingTableError as error:
        figures.notes.append(f"{error}.")
        return
    for row in by_day:
        figures.lag_days.append({**row, "table": f"{source}.{row['table_name']}"})
    for row in by_hour:
        hour = datetime.fromisoformat(row["hour"].replace("Z", "+00:00"))
        figures.lag_hours.append({**row, "table": f"{source}.{row['table_name']}", "hour": hour})


def _read_counts(config: Config, source: str, figures: Figures) -> None:
    try:
        counts = record_counts(config, source, set(figures.days))
    except MissingTableError as error:
        figures.notes.append(f"{error}.")
        return
    for row in counts:
        table = f"{source}.{row['table_name']}" if row["table_name"] else f"{source} (no table)"
        # A split update counts once.
        if row["destination"] == "changes" and row["source_op"] not in FIRST_HALVES:
            figures.changes.append(Count(row["landing_date"], table, row["op"], row["records"]))
        if row["destination"] == "quarantine":
            figures.quarantine.append(
                Count(row["landing_date"], table, row["reason"], row["records"])
            )


def _read_tables(config: Config, source: str, figures: Figures) -> None:
    not_made = []
    for table in [*state_tables(config, source), *derived_tables(config, source)]:
        try:
            found = table_days(config, table)
        except MissingTableError:
            not_made.append(str(table))
            continue
        for day in figures.days:
            if (made := found.get(day)) is None:
                continue
            figures.sizes.append(Size(day, str(table), made.rows, made.bytes))
            if made.seconds is not None:
                figures.seconds.append(Seconds(day, str(table), made.seconds))
    if not_made:
        figures.notes.append(f"No day is made yet of {', '.join(not_made)}.")


def _read_records(config: Config, figures: Figures) -> None:
    from cdc_assets.orchestration.runs import recorded_runs
    from cdc_assets.orchestration.runs.instance import dagster_home, has_instance, open_instance

    home = dagster_home().absolute()
    if not has_instance(home):
        figures.no_records = (
            "There is no dagster.yaml in DAGSTER_HOME, nor beside cdc.yaml. Set DAGSTER_HOME to "
            "the folder that holds it; runs are recorded there from then on."
        )
        return
    try:
        with open_instance(home) as instance:
            figures.verdicts = recorded_runs.newest_verdicts(
                instance, config, figures.sources, figures.days
            )
            for asset, day, seconds in recorded_runs.stage_seconds(
                instance, figures.sources, figures.days
            ):
                figures.seconds.append(Seconds(day, asset, seconds))
    except Exception as error:  # each storage has a library of its own
        figures.no_records = (
            f"Dagster's records of {home} can't be read: {type(error).__name__}: "
            f"{first_line(error)}. See that its storage is up (cdc-assets doctor)."
        )
        return
    if not figures.verdicts:
        figures.no_records = (
            f"Dagster's records of {home} hold no check of these days. They are where the days "
            "were made: set DAGSTER_HOME to that folder, or make the days again with --force."
        )
