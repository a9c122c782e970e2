"""The sensor `alerts`: sends failures and recoveries to the channels of cdc.yaml.

The cursor holds for each channel a position in the instance's events and the open problems that
it has reported. A tick reads the events since the position, sends one message, and advances the
position once the receiver has accepted it. A receiver that is down misses nothing and delays no
other channel. A problem is reported once, also across restarts of the daemon.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote
from zoneinfo import ZoneInfo

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.findings import Check
from cdc_assets.cdc.verification.findings import MATCHES_SOURCE
from cdc_assets.orchestration import checks
from cdc_assets.orchestration.assets.keys import asset_key, asset_keys, keys_of_table
from cdc_assets.orchestration.automation import health
from cdc_assets.orchestration.automation.event_feed import (
    CheckEvaluated,
    Event,
    Position,
    RunEnded,
    events_since,
    partition_range,
)
from cdc_assets.orchestration.automation.senders import Channel, Message, SendError, build_channels
from cdc_assets.orchestration.execution.jobs import daily

EVERY_SECONDS = 60
# The cursor drops older open problems; they may be reported once more.
_MAX_OPEN = 2_000
# Dagster stops a tick after 60 seconds; later channels wait for the next tick.
_START_WITHIN_SECONDS = 20

Kind = Literal["run failed", "check failed", "not fresh", "silent", "resolved"]
# The plural of each kind, the worst first.
_PLURALS: dict[Kind, str] = {
    "run failed": "runs failed",
    "check failed": "checks failed",
    "not fresh": "not fresh",
    "silent": "silent",
    "resolved": "resolved",
}
_KINDS = {health.FRESH.name: "not fresh", health.ALIVE.name: "silent"}


@dataclass(frozen=True)
class Alert:
    """A problem, or the end of one; instants are ISO texts in the project's timezone.

    An alert that is sent twice has the same `id` both times.
    """

    id: str
    kind: Kind
    title: str
    sources: tuple[str, ...]
    table: str | None
    asset: str | None
    check: str | None
    day: str | None
    severity: str | None
    got: str
    expected: str
    since: str
    at: str
    run_id: str | None
    link: str | None

    @property
    def lines(self) -> list[str]:
        """The lines below the title."""
        lines = {"got": self.got, "expected": self.expected, "since": self.since}
        lines |= {"run": self.run_id or "", "see": self.link or ""}
        return [f"{name}: {text}" for name, text in lines.items() if text]


@dataclass(frozen=True)
class OpenProblem:
    """A problem that a channel has reported, its begin and its run."""

    since: float
    run_id: str | None = None


@dataclass(frozen=True)
class State:
    """The state of a channel in the cursor: events read, and problems reported and not resolved.

    `is_new` until the first message is accepted, which includes the sources that are already silent
    or not fresh.
    """

    position: Position
    open: Mapping[str, OpenProblem] = field(default_factory=dict)
    is_new: bool = True

    @classmethod
    def load(cls, raw: Mapping[str, Any]) -> State:
        """A state from the cursor's JSON."""
        problems = {key: OpenProblem(**value) for key, value in raw["open"].items()}
        return cls(Position(**raw["position"]), problems, raw["is_new"])


# --- from events to alerts


def build_alerts(
    config: Config, instance: dg.DagsterInstance, state: State, events: Iterable[Event]
) -> tuple[list[Alert], dict[str, OpenProblem]]:
    """The alerts of events, and the open problems after them."""
    builder, problems = _AlertBuilder(config, instance), dict(state.open)
    alerts: list[Alert] = []
    for event in events:
        if isinstance(event, CheckEvaluated):
            alerts += builder.check_alerts(event, problems)
        else:
            alerts += builder.run_alerts(event, problems)
    newest = sorted(problems.items(), key=lambda item: item[1].since)[-_MAX_OPEN:]
    return alerts, dict(newest)


class _AlertBuilder:
    """Builds the alerts of an event and updates the open problems."""

    def __init__(self, config: Config, instance: dg.DagsterInstance) -> None:
        self.config, self.instance = config, instance
        self.tables = {
            key.to_user_string(): table
            for source, settings in config.sources.items()
            for table in settings.tables
            for key in keys_of_table(source, table, config)
        }
        self.expected = {check.name: check.description for check in _all_checks()}

    def check_alerts(self, event: CheckEvaluated, problems: dict[str, OpenProblem]) -> list[Alert]:
        found = event.evaluation
        if found.asset_key.path[0] not in self.config.sources:
            return []
        is_problem = not found.passed and (
            found.severity == dg.AssetCheckSeverity.ERROR or found.check_name in health.NAMES
        )
        asset = found.asset_key.to_user_string()
        key = f"{asset} {found.check_name} {found.partition or ''}".strip()
        if is_problem == (key in problems):
            return []
        since = problems.pop(key).since if not is_problem else event.at
        if is_problem:
            problems[key] = OpenProblem(since, event.run_id)
        on_day = f" on {found.partition}" if found.partition else ""
        source, what = found.asset_key.path[0], self._what(found)
        level = "" if found.passed else f" ({found.severity.value})"
        kind: Any = _KINDS.get(found.check_name, "check failed") if is_problem else "resolved"
        return [
            self._alert(
                key,
                kind=kind,
                title=f"{source}: {what}{on_day}{level}"
                if is_problem
                else f"{source}: resolved: {found.check_name} of {asset}{on_day}",
                sources=(source,),
                table=self.tables.get(asset),
                asset=asset,
                check=found.check_name,
                day=found.partition,
                severity=found.severity.value if is_problem else None,
                got=_got(found),
                expected=self.expected.get(found.check_name, "") if is_problem else "",
                since=since,
                at=event.at,
                run_id=event.run_id,
                page=f"assets/{'/'.join(quote(p, safe='') for p in found.asset_key.path)}"
                f"?view=checks&checkDetail={quote(found.check_name, safe='')}",
            )
        ]

    def _what(self, found: dg.AssetCheckEvaluation) -> str:
        kind = _KINDS.get(found.check_name)
        return kind or f"{found.check_name} of {found.asset_key.to_user_string()} failed"

    def run_alerts(self, event: RunEnded, problems: dict[str, OpenProblem]) -> list[Alert]:
        run = event.run
        keys = {_run_key(run, source): source for source in self._sources(event)}
        if event.failed:
            return self._failed(event, problems, keys) if keys else []
        return [
            self._resolved(event, problems.pop(key).since, source)
            for key, source in keys.items()
            if key in problems and self._resolves(event, problems[key], source)
        ]

    def _failed(
        self, event: RunEnded, problems: dict[str, OpenProblem], keys: Mapping[str, str]
    ) -> list[Alert]:
        run = event.run
        for key in keys:
            since = problems[key].since if key in problems else event.at
            problems[key] = OpenProblem(since, run.run_id)
        sources = tuple(source for source in keys.values() if source)
        is_retried = run.tags.get("dagster/will_retry") == "true"
        return [
            self._alert(
                f"run {run.run_id}",
                kind="run failed",
                title=f"{', '.join(sources) or run.job_name}: run failed{_days(event)}",
                sources=sources,
                day=str(event.days[-1]) if event.days else None,
                severity="ERROR",
                got="; ".join(f"{step}: {why}" for step, why in event.reasons.items()),
                expected="the run succeeds" + (". Dagster retries it" if is_retried else ""),
                since=min(problems[key].since for key in keys),
                at=event.at,
                run_id=run.run_id,
                page=f"runs/{run.run_id}",
            )
        ]

    def _resolved(self, event: RunEnded, since: float, source: str) -> Alert:
        run = event.run
        return self._alert(
            f"{_run_key(run, source)} {run.run_id}",
            kind="resolved",
            title=f"{source or run.job_name}: resolved: run succeeded{_days(event)}",
            sources=(source,) if source else (),
            day=str(event.days[-1]) if event.days else None,
            got="the run succeeded",
            expected="",
            since=since,
            at=event.at,
            run_id=run.run_id,
            page=f"runs/{run.run_id}",
        )

    def _resolves(self, event: RunEnded, problem: OpenProblem, source: str) -> bool:
        """Whether a run has made the assets and the last day of the failed run."""
        failed = self.instance.get_run_by_id(problem.run_id) if problem.run_id else None
        if failed is None or not source:
            return True
        days, failed_days = event.days, partition_range(failed)
        if days and failed_days and not days[0] <= failed_days[1] <= days[1]:
            return False
        return self._assets(failed, source) <= self._assets(event.run, source)

    def _assets(self, run: dg.DagsterRun, source: str) -> set[dg.AssetKey]:
        if run.asset_selection is None:
            return set(asset_keys(source, self.config))
        return {key for key in run.asset_selection if key.path[0] == source}

    def _sources(self, event: RunEnded) -> list[str]:
        """The sources of a run, or those of its failed steps.

        The job `maintenance` has an empty one, runs of other projects have none.
        """
        run, sources = event.run, self.config.sources
        if _makes_assets(run):
            chosen = {key.path[0] for key in run.asset_selection or ()} or set(sources)
            known = [source for source in sources if source in chosen]
            failed = [s for s in known if any(_is_source_step(step, s) for step in event.reasons)]
            return failed or known
        return [""] if run.job_name == "maintenance" else []

    def _alert(
        self, key: str, *, since: float, at: float, got: str, page: str, **values: Any
    ) -> Alert:
        url = self.config.alerts.dagster_url
        empty = dict.fromkeys(("table", "asset", "check", "day", "severity"))
        return Alert(
            id=hashlib.sha256(f"{key} {values['kind']} {at}".encode()).hexdigest()[:16],
            got=got,
            since=self._instant(since),
            at=self._instant(at),
            link=f"{url.rstrip('/')}/{page}" if url else None,
            **{**empty, **values},
        )

    def _instant(self, seconds: float) -> str:
        zone = ZoneInfo(self.config.timezone)
        return datetime.fromtimestamp(seconds, zone).isoformat(timespec="seconds")


def _all_checks() -> list[Check]:
    return [*checks.DAY_CHECKS, health.FRESH, health.ALIVE, health.MADE, MATCHES_SOURCE]


def _makes_assets(run: dg.DagsterRun) -> bool:
    return bool(run.asset_selection) or run.job_name == daily.name


def _run_key(run: dg.DagsterRun, source: str) -> str:
    return f"run {source or run.job_name}"


STEPS = ("landing", "changes", "tables", "lag")


def _is_source_step(step: str, source: str) -> bool:
    return step in {f"{source}__{stage}" for stage in STEPS}


def _days(event: RunEnded) -> str:
    if event.days is None:
        return ""
    first, last = event.days
    return f" ({first})" if first == last else f" ({first}…{last})"


def _got(found: dg.AssetCheckEvaluation) -> str:
    """The description of an evaluation, else its figures; its texts may hold values of rows."""
    if found.description:
        return found.description
    figures = {
        name: value.value
        for name, value in found.metadata.items()
        if isinstance(value, (dg.IntMetadataValue, dg.FloatMetadataValue))
    }
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in figures.items())


# --- the sensor


def build_alerts_sensor(config: Config) -> dg.SensorDefinition | None:
    """The sensor `alerts`, on by default; None if no channel is configured.

    Raises:
        ConfigError: a channel's package is not installed.
    """
    channels = build_channels(config)
    if not channels:
        return None

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=EVERY_SECONDS,
        description="Alerts the channels of cdc.yaml to failed runs, failed checks and sources "
        "without new data, and reports when each is resolved.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, config, channels)

    return sensor


@dataclass(frozen=True)
class _Outcome:
    state: State
    message: str
    is_error: bool = False


def _tick(
    context: dg.SensorEvaluationContext, config: Config, channels: Sequence[Channel]
) -> dg.SensorResult:
    deadline = time.monotonic() + _START_WITHIN_SECONDS
    known = _states(context.cursor)
    before = {c.name: known[c.name] for c in channels if c.name in known}
    if len(before) < len(channels):
        start = State(Position.newest(context.instance))
        before = {c.name: known.get(c.name, start) for c in channels}
    # Channels at the same position share the events.
    read: dict[Position, tuple[list[Event], Position]] = {}
    for state in before.values():
        if state.position not in read:
            read[state.position] = events_since(context.instance, state.position)
    is_any_new = any(state.is_new for state in before.values())
    already = _health_events(config, context.instance) if is_any_new else []

    def notify(channel: Channel) -> _Outcome:
        state = before[channel.name]
        events, position = read[state.position]
        if state.is_new:
            events = [*already, *events]
        alerts, problems = build_alerts(config, context.instance, state, events)
        alerts = [alert for alert in alerts if channel.accepts(alert.sources, alert.table)]
        fault = _send(channel, alerts, deadline) if alerts else ""
        if fault:
            return _Outcome(state, fault, is_error=True)
        text = f"{channel.name}: {len(alerts)} alerts sent" if alerts else ""
        return _Outcome(State(position, problems, is_new=False), text)

    with ThreadPoolExecutor(8) as pool:
        outcomes = dict(zip(before, pool.map(notify, channels), strict=True))
    for outcome in outcomes.values():
        if outcome.is_error:
            context.log.error(outcome.message)
    text = "; ".join(outcome.message for outcome in outcomes.values() if outcome.message)
    states = {name: asdict(outcome.state) for name, outcome in outcomes.items()}
    return dg.SensorResult(
        skip_reason=text or "nothing new", cursor=json.dumps(states, sort_keys=True)
    )


def _send(channel: Channel, alerts: Sequence[Alert], deadline: float) -> str:
    """Send alerts in one message; returns why they were not sent."""
    if time.monotonic() > deadline:
        return f"{channel.name}: waits for the next tick"
    try:
        channel.send(_message(alerts))
    except SendError as error:
        return f"{channel.name}: {len(alerts)} alerts not sent: {error}. The next tick retries"
    except Exception as error:  # it must not stop the other channels
        return f"{channel.name}: {len(alerts)} alerts not sent: {type(error).__name__}"
    return ""


def _states(cursor: str | None) -> dict[str, State]:
    """The channels' states; none if the cursor is unreadable, such as another version's."""
    try:
        return {name: State.load(raw) for name, raw in json.loads(cursor or "{}").items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _health_events(config: Config, instance: dg.DagsterInstance) -> list[Event]:
    """The latest evaluations of the health checks, for the first message of a new channel."""
    found: list[Event] = []
    for source in config.sources:
        for check in health.NAMES:
            record = health.last_recorded(instance, asset_key(source, "changes"), check)
            if record is not None and record.event and record.evaluation:
                found.append(CheckEvaluated(record.event.timestamp, record.evaluation))
    return found


def _message(alerts: Sequence[Alert]) -> Message:
    """All alerts as one message, the worst first."""
    ordered = sorted(alerts, key=lambda alert: list(_PLURALS).index(alert.kind))
    counts = Counter(alert.kind for alert in ordered)
    title = ordered[0].title
    if len(ordered) > 1:
        title = ", ".join(
            f"{count} {_PLURALS[kind] if count > 1 else kind}" for kind, count in counts.items()
        )
    return Message(title, [(a.title, a.lines) for a in ordered], [asdict(a) for a in ordered])
