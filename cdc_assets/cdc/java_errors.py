"""Java exceptions raised by Py4J and Spark, as their chain of causes.

The text of such an exception is a stack trace, and its wording changes with versions and locales;
the classes and codes of its causes identify the failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from cdc_assets.cdc.errors import first_line
from cdc_assets.cdc.redaction import without_logins

JAVA_ERRORS = (Py4JError, PySparkException)
_DEEPEST = 50  # a chain of causes may be a circle


@dataclass(frozen=True)
class Cause:
    """One throwable of a chain."""

    classes: tuple[str, ...]  # its own class first, then those that it extends
    message: str = ""
    code: str = ""  # SQLite's result code, as SQLITE_BUSY
    sql_state: str = ""  # of a JDBC driver, or of Spark's error condition
    condition: str = ""  # Spark's error condition, as FAILED_READ_FILE.NO_HINT
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the condition

    def is_a(self, *names: str) -> bool:
        """True if it is one of these classes, or extends one."""
        return any(name in self.classes for name in names)

    @property
    def kind(self) -> str:
        """The class, and Spark's error condition if it has one."""
        name = self.classes[0].rpartition(".")[2]
        return f"{name} [{self.condition}]" if self.condition else name

    def __str__(self) -> str:
        name = self.classes[0].rpartition(".")[2]
        line = without_logins((self.message.strip().splitlines() or [""])[0][:300])
        return f"{name}: {line}" if line else name


def causes(error: BaseException) -> list[Cause]:
    """The throwables behind an exception, outermost first; empty without one.

    If the JVM has exited, the chain is incomplete.
    """
    found: list[Cause] = []
    try:
        for throwable in _chain(_throwable_behind(error)):
            found.append(_cause_of(throwable))
    except (Py4JError, OSError):
        pass
    return found


def root_cause(error: BaseException, with_values: bool = True) -> str:
    """The innermost cause of a Java exception in one line; the first line of other exceptions.

    Spark's messages repeat values of the data: without values, only the kind of the cause.
    """
    chain = causes(error) if isinstance(error, JAVA_ERRORS) else []
    if not with_values:
        kind = chain[-1].kind if chain else type(error).__name__
        return f"{kind} (what it says may hold values of this source, which shows none)"
    return str(chain[-1]) if chain else first_line(error)


def _throwable_behind(error: BaseException | None) -> Any:
    """The Java throwable of an exception or of its Python causes."""
    while error is not None:
        if isinstance(error, Py4JJavaError):
            return error.java_exception
        # PySpark has the throwable if it has a Python class for the exception, else only the
        # exception of its cause.
        for captured in (error, getattr(error, "_cause", None)):
            if (origin := getattr(captured, "_origin", None)) is not None:
                return origin
        error = error.__cause__
    return None


def _chain(throwable: Any) -> Iterator[Any]:
    for _ in range(_DEEPEST):
        if throwable is None:
            return
        yield throwable
        throwable = throwable.getCause()


def _cause_of(throwable: Any) -> Cause:
    classes, interfaces = _types_of(throwable)
    message = str(throwable.getMessage() or "")
    if "org.apache.spark.SparkThrowable" in interfaces:
        return Cause(
            classes,
            message,
            sql_state=throwable.getSqlState() or "",
            condition=throwable.getCondition() or "",
            parameters=dict(throwable.getMessageParameters() or {}),
        )
    if "java.sql.SQLException" not in classes:
        return Cause(classes, message)
    is_sqlite = "org.sqlite.SQLiteException" in classes
    code = throwable.getResultCode().name() if is_sqlite else ""
    return Cause(classes, message, code, throwable.getSQLState() or "")


def _types_of(throwable: Any) -> tuple[tuple[str, ...], set[str]]:
    """The class names of a throwable, its own first, and the interfaces they implement."""
    classes: list[str] = []
    interfaces: set[str] = set()
    kind = throwable.getClass()
    while kind is not None:
        classes.append(kind.getName())
        interfaces |= {interface.getName() for interface in kind.getInterfaces()}
        kind = kind.getSuperclass()
    return tuple(classes), interfaces
