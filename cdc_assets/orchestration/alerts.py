"""Who is told of what goes wrong: the sensor `alerts`.

Each channel has a position in the instance's events and what it has said to be wrong so far. A
tick reads what has happened since, says it in one message, and moves the position on once the
receiver has it. So a receiver that is down loses nothing and holds up no other, and what was
said is not said again: neither while it stays wrong, nor after a restart of the daemon.
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
from cdc_assets.orchestration import checks, health
from cdc_assets.orchestration.asset_keys import asset_keys, table_key
from cdc_assets.orchestration.event_feed import (
    Evaluated,
    Happening,
    Position,
    RunEnded,
    days_of,
    happened,
)
from cdc_assets.orchestration.jobs import daily
from cdc_assets.orchestration.senders import Channel, Message, SendError, channels_of

EVERY_SECONDS = 60
# Beyond, what is wrong for longest is forgotten: it may be said once more.
_MOST_WRONG = 2_000
# Dagster gives a sensor 60 seconds; a channel that has not begun by then waits for the next tick.
_BEGIN_WITHIN_SECONDS = 20

Kind = Literal["run failed", "check failed", "not fresh", "silent", "well again"]
# Of several; in this order, the worst first.
_COUNTED: dict[Kind, str] = {
    "run failed": "runs failed",
    "check failed": "checks failed",
    "not fresh": "not fresh",
    "silent": "silent",
    "well again": "well again",
}
_KINDS = {health.FRESH.name: "not fresh", health.SENDING.name: "silent"}


@dataclass(frozen=True)
class Alert:
    """One thing that went wrong, or is well again; instants are ISO texts in the project's zone.

    `id` is the same whenever the same thing is said, so that a receiver can know a repeat.
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
        """What is said below the title."""
        said = {"got": self.got, "expected": self.expected, "since": self.since}
        said |= {"run": self.run_id or "", "see": self.link or ""}
        return [f"{name}: {text}" for name, text in said.items() if text]


@dataclass(frozen=True)
class Wrong:
    """What a channel has said to be wrong: since when, and by the events of which run."""

    since: float
    run_id: str | None = None


@dataclass(frozen=True)
class State:
    """Where a channel stands: what it has been told, and of what.

    `is_new` until its first tick has reached the receiver: that one also says which sources are
    not well already.
    """

    position: Position
    wrong: Mapping[str, Wrong] = field(default_factory=dict)
    is_new: bool = True

    @classmethod
    def load(cls, raw: Mapping[str, Any]) -> State:
        """A state of the cursor."""
        wrong = {key: Wrong(**value) for key, value in raw["wrong"].items()}
        return cls(Position(**raw["position"]), wrong, raw["is_new"])


# --- what there is to say


def news(
    config: Config, instance: dg.DagsterInstance, state: State, happenings: Iterable[Happening]
) -> tuple[list[Alert], dict[str, Wrong]]:
    """The alerts of what has happened, and what is wrong behind it."""
    teller, wrong = _Teller(config, instance), dict(state.wrong)
    alerts: list[Alert] = []
    for happening in happenings:
        if isinstance(happening, Evaluated):
            alerts += teller.of_check(happening, wrong)
        else:
            alerts += teller.of_run(happening, wrong)
    newest = sorted(wrong.items(), key=lambda item: item[1].since)[-_MOST_WRONG:]
    return alerts, dict(newest)


class _Teller:
    """Alerts of single happenings; each keeps up what is wrong."""

    def __init__(self, config: Config, instance: dg.DagsterInstance) -> None:
        self.config, self.instance = config, instance
        self.tables = {
            table_key(name, table).to_user_string(): table
            for name, source in config.sources.items()
            for table in source.tables
        }
        self.expected = {check.name: check.description for check in _all_checks()}

    def of_check(self, happening: Evaluated, wrong: dict[str, Wrong]) -> list[Alert]:
        found = happening.evaluation
        if found.asset_key.path[0] not in self.config.sources:
            return []
        is_wrong = not found.passed and (
            found.severity == dg.AssetCheckSeverity.ERROR or found.check_name in health.NAMES
        )
        asset = found.asset_key.to_user_string()
        key = f"{asset} {found.check_name} {found.partition or ''}".strip()
        if is_wrong == (key in wrong):
            return []
        since = wrong.pop(key).since if not is_wrong else happening.at
        if is_wrong:
            wrong[key] = Wrong(since, happening.run_id)
        of_day = f" on {found.partition}" if found.partition else ""
        source, what = found.asset_key.path[0], self._what(found)
        level = "" if found.passed else f" ({found.severity.value})"
        kind: Any = _KINDS.get(found.check_name, "check failed") if is_wrong else "well again"
        return [
            self._alert(
                key,
                kind=kind,
                title=f"{source}: {what}{of_day}{level}"
                if is_wrong
                else f"{source}: well again: {found.check_name} of {asset}{of_day}",
                sources=(source,),
                table=self.tables.get(asset),
                asset=asset,
                check=found.check_name,
                day=found.partition,
                severity=found.severity.value if is_wrong else None,
                got=_got(found),
                expected=self.expected.get(found.check_name, "") if is_wrong else "",
                since=since,
                at=happening.at,
                run_id=happening.run_id,
                page=f"assets/{'/'.join(quote(p, safe='') for p in found.asset_key.path)}"
                f"?view=checks&checkDetail={quote(found.check_name, safe='')}",
            )
        ]

    def _what(self, found: dg.AssetCheckEvaluation) -> str:
        kind = _KINDS.get(found.check_name)
        return kind or f"{found.check_name} of {found.asset_key.to_user_string()} failed"

    def of_run(self, happening: RunEnded, wrong: dict[str, Wrong]) -> list[Alert]:
        run = happening.run
        keys = {_run_key(run, source): source for source in self._sources(happening)}
        if happening.failed:
            return self._failed(happening, wrong, keys) if keys else []
        return [
            self._made_good(happening, wrong.pop(key).since, source)
            for key, source in keys.items()
            if key in wrong and self._makes_good(happening, wrong[key], source)
        ]

    def _failed(
        self, happening: RunEnded, wrong: dict[str, Wrong], keys: Mapping[str, str]
    ) -> list[Alert]:
        run = happening.run
        for key in keys:
            since = wrong[key].since if key in wrong else happening.at
            wrong[key] = Wrong(since, run.run_id)
        sources = tuple(source for source in keys.values() if source)
        again = run.tags.get("dagster/will_retry") == "true"
        return [
            self._alert(
                f"run {run.run_id}",
                kind="run failed",
                title=f"{', '.join(sources) or run.job_name}: run failed{_days(happening)}",
                sources=sources,
                day=str(happening.days[-1]) if happening.days else None,
                severity="ERROR",
                got="; ".join(f"{step}: {why}" for step, why in happening.reasons.items()),
                expected="the run succeeds" + (". Dagster starts it again" if again else ""),
                since=min(wrong[key].since for key in keys),
                at=happening.at,
                run_id=run.run_id,
                page=f"runs/{run.run_id}",
            )
        ]

    def _made_good(self, happening: RunEnded, since: float, source: str) -> Alert:
        run = happening.run
        return self._alert(
            f"{_run_key(run, source)} {run.run_id}",
            kind="well again",
            title=f"{source or run.job_name}: well again: run succeeded{_days(happening)}",
            sources=(source,) if source else (),
            day=str(happening.days[-1]) if happening.days else None,
            got="the run succeeded",
            expected="",
            since=since,
            at=happening.at,
            run_id=run.run_id,
            page=f"runs/{run.run_id}",
        )

    def _makes_good(self, happening: RunEnded, wrong: Wrong, source: str) -> bool:
        """Has a run made what the failed one was to make, up to its last day?"""
        failed = self.instance.get_run_by_id(wrong.run_id) if wrong.run_id else None
        if failed is None or not source:
            return True
        days, failed_days = happening.days, days_of(failed)
        if days and failed_days and not days[0] <= failed_days[1] <= days[1]:
            return False
        return self._assets(failed, source) <= self._assets(happening.run, source)

    def _assets(self, run: dg.DagsterRun, source: str) -> set[dg.AssetKey]:
        if run.asset_selection is None:
            return set(asset_keys(source, self.config))
        return {key for key in run.asset_selection if key.path[0] == source}

    def _sources(self, happening: RunEnded) -> list[str]:
        """The sources that a run is about, of a failed one those that failed.

        One empty text of a run of the project that is about none; nothing of another project's.
        """
        run, names = happening.run, self.config.sources
        if _is_of_assets(run):
            chosen = {key.path[0] for key in run.asset_selection or ()} or set(names)
            known = [name for name in names if name in chosen]
            failed = [n for n in known if any(_is_step_of(step, n) for step in happening.reasons)]
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


def _all_checks() -> list[checks.Check]:
    of_days = (checks.LANDING, checks.CHANGES, checks.QUARANTINE, checks.TABLE, checks.LAG)
    return [*(c for group in of_days for c in group), health.FRESH, health.SENDING]


def _is_of_assets(run: dg.DagsterRun) -> bool:
    return bool(run.asset_selection) or run.job_name == daily.name


def _run_key(run: dg.DagsterRun, source: str) -> str:
    return f"run {source or run.job_name}"


def _is_step_of(step: str, source: str) -> bool:
    return step in {f"{source}__{stage}" for stage in ("landing", "changes", "tables", "lag")}


def _days(happening: RunEnded) -> str:
    if happening.days is None:
        return ""
    first, last = happening.days
    return f" ({first})" if first == last else f" ({first}…{last})"


def _got(found: dg.AssetCheckEvaluation) -> str:
    """What a check found: its sentence, else its figures. Texts may hold values of the data."""
    if found.description:
        return found.description
    figures = {
        name: value.value
        for name, value in found.metadata.items()
        if isinstance(value, (dg.IntMetadataValue, dg.FloatMetadataValue))
    }
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in figures.items())


# --- what a tick does


def build_alerts_sensor(config: Config) -> dg.SensorDefinition | None:
    """The sensor `alerts`, which runs from the start; None where no channel is configured.

    Raises:
        ConfigError: a channel's package is not installed.
    """
    channels = channels_of(config)
    if not channels:
        return None

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=EVERY_SECONDS,
        description="Tells the channels of cdc.yaml of failed runs, failed checks and sources "
        "without new data, and when all is well again.",
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _tick(context, config, channels)

    return sensor


@dataclass(frozen=True)
class _Outcome:
    state: State
    says: str
    is_error: bool = False


def _tick(
    context: dg.SensorEvaluationContext, config: Config, channels: Sequence[Channel]
) -> dg.SensorResult:
    begin_until = time.monotonic() + _BEGIN_WITHIN_SECONDS
    known = _states(context.cursor)
    before = {c.name: known[c.name] for c in channels if c.name in known}
    if len(before) < len(channels):
        start = State(Position.newest(context.instance))
        before = {c.name: known.get(c.name, start) for c in channels}
    # Channels that stand at the same place, as they mostly do, share what is read.
    read: dict[Position, tuple[list[Happening], Position]] = {}
    for state in before.values():
        if state.position not in read:
            read[state.position] = happened(context.instance, state.position)
    is_any_new = any(state.is_new for state in before.values())
    already = _unwell(config, context.instance) if is_any_new else []

    def tell(channel: Channel) -> _Outcome:
        state = before[channel.name]
        happenings, position = read[state.position]
        if state.is_new:
            happenings = [*already, *happenings]
        alerts, wrong = news(config, context.instance, state, happenings)
        behind = State(position, wrong, is_new=False)
        alerts = [alert for alert in alerts if channel.wants(alert.sources, alert.table)]
        if not alerts:
            return _Outcome(behind, "")
        if time.monotonic() > begin_until:
            return _Outcome(state, f"{channel.name}: waits for the next tick", is_error=True)
        try:
            channel.send(_message(alerts))
        except SendError as error:
            says = f"{channel.name}: {len(alerts)} alerts not sent: {error}. The next tick does"
            return _Outcome(state, says, is_error=True)
        except Exception as error:  # a fault of one channel is none of the others
            says = f"{channel.name}: {len(alerts)} alerts not sent: {type(error).__name__}"
            return _Outcome(state, says, is_error=True)
        return _Outcome(behind, f"{channel.name}: {len(alerts)} alerts sent")

    with ThreadPoolExecutor(8) as pool:
        outcomes = dict(zip(before, pool.map(tell, channels), strict=True))
    for outcome in outcomes.values():
        if outcome.is_error:
            context.log.error(outcome.says)
    says = "; ".join(outcome.says for outcome in outcomes.values() if outcome.says)
    states = {name: asdict(outcome.state) for name, outcome in outcomes.items()}
    return dg.SensorResult(
        skip_reason=says or "nothing new", cursor=json.dumps(states, sort_keys=True)
    )


def _states(cursor: str | None) -> dict[str, State]:
    """The channels' states; one that can't be read, as of another version, begins anew."""
    try:
        return {name: State.load(raw) for name, raw in json.loads(cursor or "{}").items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _unwell(config: Config, instance: dg.DagsterInstance) -> list[Happening]:
    """The newest verdicts on the sources: a new channel is told of what is wrong already."""
    found: list[Happening] = []
    for name in config.sources:
        for check in health.NAMES:
            record = health.last_recorded(instance, dg.AssetKey([name, "changes"]), check)
            if record is not None and record.event and record.evaluation:
                found.append(Evaluated(record.event.timestamp, record.evaluation))
    return found


def _message(alerts: Sequence[Alert]) -> Message:
    """The worst first."""
    ordered = sorted(alerts, key=lambda alert: list(_COUNTED).index(alert.kind))
    counts = Counter(alert.kind for alert in ordered)
    title = ordered[0].title
    if len(ordered) > 1:
        title = ", ".join(
            f"{count} {_COUNTED[kind] if count > 1 else kind}" for kind, count in counts.items()
        )
    return Message(title, [(a.title, a.lines) for a in ordered], [asdict(a) for a in ordered])
