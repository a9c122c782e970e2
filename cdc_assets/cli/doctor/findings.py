"""The findings and the context of checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pyspark.sql import SparkSession

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake.errors import one_line
from cdc_assets.cdc.redaction import without_secrets


class Status(str, Enum):
    """The result of a check."""

    ok = "ok"
    warning = "warning"
    problem = "problem"


@dataclass(frozen=True)
class Finding:
    """One result of a check; `remedy` is empty where there is nothing to do."""

    check: str
    status: Status
    found: str
    remedy: str = ""


@dataclass
class Context:
    """Input of the checks. The check `configuration` sets `config`, the check `spark` sets `spark`.

    `adopted` has by source the tables that patterns adopt, `secrets` the values that no finding
    may show.
    """

    config_file: str | None = None
    quick: bool = False
    config: Config | None = None
    adopted: Mapping[str, Collection[str]] = field(default_factory=dict)
    spark: SparkSession | None = None
    secrets: set[str] = field(default_factory=set)


Check = Callable[[Context], Iterable[Finding]]


def finding(check: str, is_ok: bool, found: str, remedy: str) -> Finding:
    """An `ok` finding, or a problem with its remedy."""
    return (
        Finding(check, Status.ok, found) if is_ok else Finding(check, Status.problem, found, remedy)
    )


def run_check(title: str, check: Check, context: Context) -> Iterator[Finding]:
    """Run a check: its findings without secrets; an exception becomes a problem."""
    try:
        for found in check(context):
            yield _without_secrets(found, context.secrets)
    except Exception as error:
        is_plain = not isinstance(error, (CdcError, *JAVA_ERRORS))
        kind = f"{type(error).__name__}: " if is_plain else ""
        why = one_line(error, context.config).splitlines()[0]
        failed = Finding(
            title,
            Status.problem,
            f"can't be checked: {kind}{why}",
            "fix the cause that the message names",
        )
        yield _without_secrets(failed, context.secrets)


def _without_secrets(finding: Finding, secrets: set[str]) -> Finding:
    found = without_secrets(finding.found, secrets)
    remedy = without_secrets(finding.remedy, secrets)
    return Finding(finding.check, finding.status, found, remedy)
