"""JSON values as dates and time stamps (FORMATS R3)."""

from __future__ import annotations

from collections.abc import Callable

from cdc_assets.cdc.sqltext import Sql, case
from cdc_assets.cdc.values.column_types import ColumnType
from cdc_assets.cdc.values.expressions import cast, matches, once, replaced, try_cast
from cdc_assets.cdc.values.json_value import At
from cdc_assets.cdc.values.numbers import WHOLE, read_integer

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MIN_DAY, _MAX_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_MIN_SECOND, _MAX_SECOND = -62_135_596_800, 253_402_300_799


def read_days(at: At, _: ColumnType) -> Sql:
    """A count of days since 1970."""
    return _date(read_integer(at))


def _date(days: Sql) -> Sql:
    in_range = f"{days} BETWEEN {_MIN_DAY} AND {_MAX_DAY}"
    return case((in_range, f"date_from_unix_date({try_cast(days, 'int')})"))


def instant(count: Sql, per_second: int) -> Sql:
    """A count of units since 1970 as TIMESTAMP, floored to µs; null outside years 1–9999."""
    if per_second == 1_000_000_000:
        # Years 1 to 9999 in ns are beyond int64: any int64 is in range.
        return f"timestamp_micros({floor_by_1000(count)})"
    first, last = _MIN_SECOND * per_second, (_MAX_SECOND + 1) * per_second - 1
    micros = f"timestamp_micros({count} * {1_000_000 // per_second})"
    return case((f"{count} BETWEEN {first}L AND {last}L", micros))


def floor_by_1000(count: Sql) -> Sql:
    """Division that rounds down, also below zero, without passing through a double."""
    return f"CAST(floor(CAST({count} AS decimal(20,0)) / 1000) AS bigint)"


def read_local(per_second: int) -> Callable[[At, ColumnType], Sql]:
    """A count of units since 1970, of a clock without a zone."""
    return lambda at, _: cast(instant(read_integer(at), per_second), "timestamp_ntz")


_ISO = r"^[+-]?\d{4,6}-\d{2}-\d{2}"
_ISO_USUAL = r"^[1-8]\d{3}-\d{2}-\d{2}"  # no zone brings such a year out of 1 to 9999
_ZONE_OF_DATE = _ISO.replace("^", "^(") + r")(Z|[+-]\d{2}:?\d{2})$"


def read_iso(at: At, kind: ColumnType) -> Sql:
    """A date or a time stamp as ISO text."""
    return iso_value(at("string"), kind.spark)


def iso_value(text: Sql, spark: str) -> Sql:
    if spark == "date":
        return _iso_day(text)
    value = try_cast(f"trim({text})", spark)
    in_range = once(value, lambda found: case((f"year({found}) BETWEEN 1 AND 9999", found)))
    return case((matches(text, _ISO_USUAL), value), (matches(text, _ISO), in_range))


def _iso_day(text: Sql) -> Sql:
    """A date, with or without a zone, or a time stamp at midnight: no other one is a date (R3)."""
    # Debezium's IsoDate carries a zone, which no cast to a date takes: 2026-11-05Z.
    day = try_cast(replaced(f"trim({text})", _ZONE_OF_DATE, "$1"), "date")
    of_years = once(day, lambda found: case((f"year({found}) BETWEEN 1 AND 9999", found)))

    def at_midnight(time: Sql) -> Sql:
        is_midnight = f"{time} = CAST(CAST({time} AS date) AS timestamp_ntz)"
        return case(
            (f"{is_midnight} AND year({time}) BETWEEN 1 AND 9999", cast(time, "date")),
        )

    return case(
        (matches(text, _ISO_USUAL + "$"), try_cast(text, "date")),
        (matches(text, _ISO + r"\s*$"), of_years),
        (matches(text, _ZONE_OF_DATE), of_years),
        (matches(text, _ISO), once(try_cast(f"trim({text})", "timestamp_ntz"), at_midnight)),
    )


def read_number_or_iso(per_second: int) -> Callable[[At, ColumnType], Sql]:
    """Configured times: ISO text, or a whole number of units since 1970 (of days for a date)."""

    def read(at: At, kind: ColumnType) -> Sql:
        text = at("string")
        number = case((matches(text, WHOLE), try_cast(text, "bigint")))
        of_number = (
            _date(number) if kind.spark == "date" else cast(instant(number, per_second), kind.spark)
        )
        return f"coalesce({of_number}, {read_iso(at, kind)})"

    return read
