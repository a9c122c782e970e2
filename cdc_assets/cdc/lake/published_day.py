"""A day that is published as a tag: what it is made of, and making it once."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConcurrentRunError, MissingDayError
from cdc_assets.cdc.lake.commits import INPUTS, REPORT, DayBranch, TableState

if TYPE_CHECKING:  # metadata is read without PySpark
    from cdc_assets.cdc.lake.catalog import Lake


class PublishedDay(ABC):
    """What a day of a table is made of: metadata alone, no Spark.

    Args:
        config: cdc.yaml.
        source: the source's name in it.
        table: the table's name in the configuration.
        day: the day.
        state: the metadata of what is made, None where there is no table yet.
    """

    def __init__(
        self, config: Config, source: str, table: str, day: date, state: TableState | None
    ) -> None:
        self.config, self.source, self.table, self.day = config, source, table, day
        self.state = state
        self.settings = config.source(source)
        self.start = config.start_of(source, table)

    @property
    @abstractmethod
    def values(self) -> Mapping[str, Any]:
        """The snapshots and rules: a day that was made of the same ones is up to date.

        Raises:
            MissingDayError: the day before, or what the day is made from, is not there yet.
        """

    @abstractmethod
    def parents(self) -> Mapping[str, Any]:
        """Those of the values that other days decide, as they are now.

        Raises:
            MissingDayError: as of :attr:`values`.
        """

    @property
    @abstractmethod
    def outdated(self) -> list[date]:
        """Published days before this one that are to be made again first, the oldest first."""

    @property
    def text(self) -> str:
        """The inputs as the day's snapshot records them."""
        return json.dumps(self.values, sort_keys=True)

    @property
    def summary(self) -> Mapping[str, str]:
        """The summary of the published day; empty where there is none."""
        return self.state.day_summary(self.day) if self.state else {}

    @property
    def is_up_to_date(self) -> bool:
        """Whether the published day was made of the same."""
        return self.summary.get(INPUTS) == self.text

    @property
    def is_of_what_is_there(self) -> bool:
        """Whether the published day was made of what is there now, whatever the rules.

        The schedule asks: rules that changed are no reason to request a day.
        """
        made_of = self.state.made_of(self.day) if self.state else {}
        try:
            parents = self.parents()
        except MissingDayError:
            return False
        return bool(made_of) and all(made_of.get(what) == now for what, now in parents.items())

    def report_before(self) -> dict[str, Any]:
        """The report of the day before; empty where there is none."""
        if self.state is None or self.day <= self.start:
            return {}
        summary = self.state.day_summary(self.day - timedelta(days=1))
        found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
        return found


class Report(Protocol):
    """What a day came to: a dataclass whose fields are those of JSON."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def made(self) -> bool:
        """False where the day was left, as made of the same inputs."""


ReportT = TypeVar("ReportT", bound=Report)


def recorded_report(summary: Mapping[str, str], kind: type[ReportT]) -> ReportT:
    """The report of a published day that is left as it is."""
    recorded: dict[str, Any] = {**json.loads(summary[REPORT]), "made": False}
    return kind(**recorded)


def publish_day(
    lake: Lake,
    branch: DayBranch,
    inputs: PublishedDay,
    label: str,
    kind: type[ReportT],
    build: Callable[[DayBranch | None], ReportT],
    is_written: bool,
    inputs_now: Callable[[], PublishedDay],
) -> ReportT:
    """Make a day on a branch of its own, and publish it.

    Args:
        lake: where the table is.
        branch: the day's, not yet started.
        inputs: what the day is made of.
        label: the table in messages.
        kind: of the report.
        build: writes the rows to the branch and audits them; None: there is nothing to write.
        is_written: whether it writes rows.
        inputs_now: reads the inputs once more.

    Returns:
        The report, or that of another run that made the day of the same meanwhile.

    Raises:
        ConcurrentRunError: another run made the day of something else.
        AuditError: the day's audit failed; nothing is published.
    """
    text = inputs.text  # raises where a day is missing
    try:
        if is_written:
            lake.start(branch)
        report = build(branch if is_written else None)
        summary = {INPUTS: text, REPORT: json.dumps(asdict(report), ensure_ascii=False)}
        lake.publish(branch, summary, is_started=is_written)
    except Exception as error:
        lake.drop_branch(branch)
        now = inputs_now()
        if now.state is None or now.state.tags.get(now.day) == branch.replaces:
            raise
        if now.summary.get(INPUTS) != text:
            raise ConcurrentRunError(label, [now.day]) from error
        return recorded_report(now.summary, kind)
    except BaseException:
        lake.drop_branch(branch)
        raise
    return report
