"""JSON values → typed columns (FORMATS R3–R5), as SQL text: what a column can't hold is null (R4).

No value passes through a type that would round it: numbers are read by their digits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.cdc.names import ddl_of, json_path, quote
from cdc_assets.cdc.sqltext import (
    Sql,
    base64_of,
    case,
    get,
    is_present,
    is_text,
    let,
    literal,
    literals,
    members_of,
)
from cdc_assets.cdc.values.column_types import (
    MAX_DECIMAL,
    MAX_SCALE,
    ColumnType,
    decimal_parts,
    has_numbers,
    held_as,
    is_number,
)

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MIN_DAY, _MAX_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_MIN_SECOND, _MAX_SECOND = -62_135_596_800, 253_402_300_799
_MAX_NUMBER_BYTES = 1_000  # a longer one is no number that a person wrote


class At(Protocol):
    """Where one JSON value stands."""

    def __call__(self, kind: str) -> Sql:
        """The value as a Spark type; null where it is absent or does not fit."""

    @property
    def text(self) -> Sql:
        """A string itself, of other values their JSON; null where it is absent, or JSON null."""

    @property
    def is_string(self) -> Sql:
        """Is it a JSON string?"""

    @property
    def is_double(self) -> Sql:
        """Is it a number that VARIANT holds as a double?"""


@dataclass(frozen=True)
class InVariant:
    """A value that stands in a VARIANT."""

    read: Callable[[str], Sql]

    def __call__(self, kind: str) -> Sql:
        return self.read(kind)

    @property
    def text(self) -> Sql:
        return f"coalesce({self('string')}, nullif(to_json({self('variant')}), 'null'))"

    @property
    def is_string(self) -> Sql:
        return is_text(self("variant"))

    @property
    def is_double(self) -> Sql:
        return f"schema_of_variant({self('variant')}) = 'DOUBLE'"


def member(row: Sql, name: str, kind: str = "variant") -> Sql:
    """A named member of a VARIANT object, whatever characters the name has."""
    path = json_path(name)
    if path is not None:
        return get(row, path, kind)
    # Names with both quotes have no path; a map lookup needs none.
    found = f"try_element_at({members_of(row)}, {literal(name)})"
    return found if kind == "variant" else get(found, "$", kind)


def of_member(row: Sql, name: str) -> At:
    """Reads the member `name` of a VARIANT row."""
    return InVariant(lambda kind: member(row, name, kind))


def itself(value: Sql) -> At:
    """Reads a VARIANT."""
    return InVariant(lambda kind: get(value, "$", kind))


def read_value(at: At, kind: ColumnType, column: str | None = None) -> Sql:
    """The value as its column's type; null where the column can't hold it (R4).

    Args:
        at: where the value stands.
        kind: how it was written.
        column: the table column's type where it differs from the message's (R5).
    """
    held = kind if column is None or column == kind.spark else held_as(kind, column)
    return _READERS[held.wire](at, held)


# --- building blocks


def _let(value: Sql, body: Callable[[Sql], Sql]) -> Sql:
    """``body(value)`` with the value computed once, however often the body names it.

    Steps that each name the one before several times would grow exponentially.
    """
    name = _variable(value)
    return let(name, value, body(name))


def _each(items: Sql, body: Callable[[Sql], Sql]) -> Sql:
    name = _variable(items)
    return f"transform({items}, {name} -> {body(name)})"


def _variable(text: Sql) -> Sql:
    """A lambda's variable, of another name than those of the lambdas around it."""
    return f"v{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _cast(value: Sql, kind: str) -> Sql:
    return f"CAST({value} AS {kind})"


def _try_cast(value: Sql, kind: str) -> Sql:
    return f"try_cast({value} AS {kind})"


def _matches(text: Sql, pattern: str) -> Sql:
    return f"({text} RLIKE {literal(pattern)})"


def _replaced(text: Sql, pattern: str, by: str) -> Sql:
    return f"regexp_replace({text}, {literal(pattern)}, {literal(by)})"


def _found(text: Sql, pattern: str) -> Sql:
    return f"regexp_extract({text}, {literal(pattern)}, 1)"


def _null(kind: str) -> Sql:
    return _cast("NULL", kind)


# --- one type in a column of another


def _held(at: At, kind: ColumnType) -> Sql:
    """A value of one type in a column of another: exactly, or null (R4, R5)."""
    assert kind.element is not None
    sent, target = kind.element, kind.spark
    if "<" in target or ("<" in sent.spark and target != "string"):
        return _null(target)
    if "<" in sent.spark:
        return f"to_json({at('variant')})"
    text = plain_text(read_value(at, sent), sent.spark)
    if target == "string":
        # With all digits of its scale, as the source shows it.
        is_decimal = decimal_parts(sent.spark) is not None
        return _cast(read_value(at, sent), "string") if is_decimal else text
    if sent.spark == "boolean" and is_number(target):
        return _cast(read_value(at, sent), target)
    if sent.spark == "string" and is_number(target):
        number = _let(text, lambda found: _number_held(found, target))
        return f"coalesce({number}, {_of_truth(text, target)})"
    if target == "boolean":
        return _boolean_of(text)
    if is_number(target):
        return _number_held(text, target)
    if target == "binary":
        return _from_base64(text) if sent.spark == "string" else _null(target)
    return _iso_value(text, target)


def _number_held(text: Sql, target: str) -> Sql:
    """A number's text as a number of another type."""
    if target in ("int", "bigint"):
        return _let(
            _replaced(text, r"\.0+$", ""),
            lambda whole: case((_matches(whole, _WHOLE), _try_cast(whole, target))),
        )
    if target in ("float", "double"):
        return _let(text, lambda found: _unrounded(found, target))
    return _exact(text, target)


def plain_text(value: Sql, spark: str) -> Sql:
    """A value as its canonical text (DESIGN, column `key`)."""
    if spark == "string":
        return value
    if spark == "binary":
        return base64_of(value)
    if spark.startswith("timestamp"):
        pattern = literal("yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        text = f"date_format({value}, {pattern})"
        text = _replaced(_replaced(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
        return f"concat({text}, {literal('Z' if spark == 'timestamp' else '')})"
    if decimal_parts(spark):
        return _replaced(_cast(value, "string"), r"\.0*$|(\.\d*?)0+$", "$1")
    return _cast(value, "string")


# --- numbers

_WHOLE = r"^[+-]?\d+$"
_WHOLE_WITH_POINT = r"^[+-]?\d+\.0+$"
_DECIMAL_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_FRACTION, _EXPONENT = r"\.(\d+)", r"[eE]([+-]?\d{1,9})$"
# What of a number's text is no digit that counts.
_NO_DIGITS = r"^-?0*\.?0*|\.|[eE].*$"
_2_TO_63 = f"{2**63}D"
_DIGITS_OF_A_DOUBLE = 15


def _unrounded(text: Sql, target: str) -> Sql:
    """A text as float or double; null for an integer that it would round, or an overflow (R3)."""
    number = _try_cast(text, target)
    # A cast to BIGINT stops at the largest one.
    is_same = (
        f"({_try_cast(text, 'bigint')} = {_try_cast(number, 'bigint')} AND {number} < {_2_TO_63})"
    )
    is_whole, is_word = _matches(text, _WHOLE), _matches(text, r"^-?[A-Z]")
    is_finite = f"abs({number}) < CAST('Infinity' AS double)"
    fits = f"({is_whole} AND {is_same}) OR (NOT {is_whole} AND ({is_finite} OR {is_word}))"
    return case((fits, number))


def _exact(text: Sql, target: str) -> Sql:
    """A number's text as DECIMAL; null where the scale would cut something off."""
    decimals = decimal_parts(target)
    assert decimals is not None, target
    _, scale = decimals

    def fitted(number: Sql) -> Sql:
        fraction = f"length(trim(TRAILING '0' FROM {_found(number, _FRACTION)}))"
        exponent = f"coalesce({_try_cast(_found(number, _EXPONENT), 'int')}, 0)"
        return case((f"{fraction} - {exponent} <= {scale}", _try_cast(number, target)))

    return _let(case((_matches(text, _DECIMAL_NUMBER), text)), fitted)


def _integer(at: At, spark: str = "bigint") -> Sql:
    """An integer, also `1.0`; null for a fraction, which a cast would cut."""
    text = at("string")
    return case(
        (_matches(text, _WHOLE), _try_cast(text, spark)),
        (
            _matches(text, _WHOLE_WITH_POINT),
            _try_cast(f"substring_index({text}, '.', 1)", spark),
        ),
    )


def _whole_number(at: At, kind: ColumnType) -> Sql:
    text = at("string")
    return f"coalesce({_integer(at, kind.spark)}, {_of_truth(text, kind.spark)})"


def _of_truth(text: Sql, spark: str) -> Sql:
    """1 and 0 of true and false, also as text (R3); null of all else."""
    return case((f"{text} IN ('true', 'false')", f"try_cast({text} = 'true' AS {spark})"))


def _boolean(at: At, _: ColumnType) -> Sql:
    return _boolean_of(at("string"))


def _boolean_of(text: Sql) -> Sql:
    return case((f"{text} IN ('true', '1')", "true"), (f"{text} IN ('false', '0')", "false"))


def _floating(at: At, kind: ColumnType) -> Sql:
    """A double or float; null for an overflow, but not for the text that says infinity."""

    def fitted(value: Sql) -> Sql:
        infinities = (_cast(f"'{sign}Infinity'", kind.spark) for sign in ("", "-"))
        is_infinite = f"{value} IN ({', '.join(infinities)})"
        is_said = _matches(at("string"), "^[+-]?(?i:infinity)$")
        return case((f"NOT {is_infinite} OR ({is_said} AND {at.is_string})", value))

    truth = _of_truth(at("string"), kind.spark)
    return f"coalesce({truth}, {_let(at(kind.spark), fitted)})"


def _inferred_double(at: At, kind: ColumnType) -> Sql:
    text = at("string")
    return f"coalesce({_unrounded(text, kind.spark)}, {_of_truth(text, kind.spark)})"


def _number_text(at: At) -> Sql:
    """The digits of a JSON number; null where VARIANT had to round it to a double (R3).

    VARIANT keeps numbers of up to 38 digits without exponent; others become doubles, which
    give back no more than 15 digits as they were.
    """
    text = at("string")
    digits = f"length({_replaced(text, _NO_DIGITS, '')})"
    is_rounded = f"({at.is_double} AND {digits} > {_DIGITS_OF_A_DOUBLE})"
    return case((f"NOT {is_rounded}", text))


def _number(at: At, kind: ColumnType) -> Sql:
    """A configured decimal: a JSON number, or its text."""
    exact = _exact(_number_text(at), kind.spark)
    return case(
        (_matches(at("string"), _short_number(kind.spark)), _try_cast(at("string"), kind.spark)),
        otherwise=f"coalesce({exact}, {_of_truth(at('string'), kind.spark)})",
    )


def _short_number(target: str) -> str:
    """The pattern of numbers that fit a decimal type, and a double: most, and told at once."""
    decimals = decimal_parts(target)
    assert decimals is not None, target
    precision, scale = decimals
    places = min(scale, _DIGITS_OF_A_DOUBLE - 1)
    digits = max(min(precision - scale, _DIGITS_OF_A_DOUBLE - places), 1)
    fraction = rf"(\.\d{{1,{places}}})?" if places else ""
    return rf"^-?\d{{1,{digits}}}{fraction}$"


# --- text and bytes


def _text(at: At, _: ColumnType) -> Sql:
    return at.text


def _enum(at: At, kind: ColumnType) -> Sql:
    """A label of an ENUM, or the label of its number, from 1; 0 is MySQL's empty text (C1)."""
    text = at("string")
    labels = literals(kind.labels)
    number = _try_cast(case((_matches(text, r"^\d{1,9}$"), text)), "int")
    label = case(
        (f"{number} = 0", "''"),
        (f"{number} <= {len(kind.labels)}", f"get(array({labels}), {number} - 1)"),
        otherwise=_text(at, kind),
    )
    is_label = f"{text} IN ({labels})"
    first = case((is_label, text), otherwise=label)
    if kind.wire == "enum" and has_numbers(kind.labels):
        first = label
    return first


def _set(at: At, kind: ColumnType) -> Sql:
    """Labels of a SET joined by commas, or those of the bits of its number (C1)."""
    text = at("string")
    bits = f"reverse(conv({text}, 10, 2))"

    def labels(of: Sql) -> Sql:
        set_ones = (
            f"CASE WHEN substring({of}, {n + 1}, 1) = '1' THEN {literal(label)} END"
            for n, label in enumerate(kind.labels)
        )
        is_known = f"{text} = '0' OR length({of}) <= {len(kind.labels)}"
        return case((is_known, f"concat_ws(',', {', '.join(set_ones)})"), otherwise=text)

    of_number = _let(bits, labels)
    is_number = _matches(text, r"^\d{1,20}$")
    if kind.wire == "set_label":
        is_number = f"({is_number} AND {text} NOT IN ({literals(kind.labels)}))"
    return case((is_number, of_number), otherwise=_text(at, kind))


def _from_base64(text: Sql) -> Sql:
    """Bytes of padded base64; Spark alone would read the text NaN as two bytes."""
    return case((f"length({text}) % 4 = 0", f"try_to_binary({text}, 'base64')"))


def _latin1(text: Sql) -> Sql:
    """Bytes that were written as the characters of their numbers; null where one is none."""
    return case((f"{text} RLIKE '^[\\\\x00-\\\\xff]*$'", f"encode({text}, 'ISO-8859-1')"))


def _base64(at: At, _: ColumnType) -> Sql:
    # A number's digits are base64, too.
    return case((at.is_string, _from_base64(at("string"))))


# --- times


def _days(at: At, _: ColumnType) -> Sql:
    return _date(_integer(at))


def _date(days: Sql) -> Sql:
    in_range = f"{days} BETWEEN {_MIN_DAY} AND {_MAX_DAY}"
    return case((in_range, f"date_from_unix_date({_try_cast(days, 'int')})"))


def _instant(count: Sql, per_second: int) -> Sql:
    """A count of units since 1970 as TIMESTAMP, floored to µs; null outside years 1–9999."""
    if per_second == 1_000_000_000:
        # Years 1 to 9999 in ns are beyond int64: any int64 is in range.
        return f"timestamp_micros({_floor_by_1000(count)})"
    first, last = _MIN_SECOND * per_second, (_MAX_SECOND + 1) * per_second - 1
    micros = f"timestamp_micros({count} * {1_000_000 // per_second})"
    return case((f"{count} BETWEEN {first}L AND {last}L", micros))


def _floor_by_1000(count: Sql) -> Sql:
    """Division that rounds down, also below zero, without passing through a double."""
    return f"CAST(floor(CAST({count} AS decimal(20,0)) / 1000) AS bigint)"


def _local(per_second: int) -> Callable[[At, ColumnType], Sql]:
    return lambda at, _: _cast(_instant(_integer(at), per_second), "timestamp_ntz")


_ISO = r"^[+-]?\d{4,6}-\d{2}-\d{2}"
_ISO_USUAL = r"^[1-8]\d{3}-\d{2}-\d{2}"  # no zone brings such a year out of 1 to 9999
_ZONE_OF_DATE = _ISO.replace("^", "^(") + r")(Z|[+-]\d{2}:?\d{2})$"


def _iso(at: At, kind: ColumnType) -> Sql:
    return _iso_value(at("string"), kind.spark)


def _iso_value(text: Sql, spark: str) -> Sql:
    if spark == "date":
        return _iso_day(text)
    value = _try_cast(f"trim({text})", spark)
    in_range = _let(value, lambda found: case((f"year({found}) BETWEEN 1 AND 9999", found)))
    return case((_matches(text, _ISO_USUAL), value), (_matches(text, _ISO), in_range))


def _iso_day(text: Sql) -> Sql:
    """A date, with or without a zone, or a time stamp at midnight: no other one is a date (R3)."""
    # Debezium's IsoDate carries a zone, which no cast to a date takes: 2026-11-05Z.
    day = _try_cast(_replaced(f"trim({text})", _ZONE_OF_DATE, "$1"), "date")
    of_years = _let(day, lambda found: case((f"year({found}) BETWEEN 1 AND 9999", found)))

    def at_midnight(time: Sql) -> Sql:
        is_midnight = f"{time} = CAST(CAST({time} AS date) AS timestamp_ntz)"
        return case(
            (f"{is_midnight} AND year({time}) BETWEEN 1 AND 9999", _cast(time, "date")),
        )

    return case(
        (_matches(text, _ISO_USUAL + "$"), _try_cast(text, "date")),
        (_matches(text, _ISO + r"\s*$"), of_years),
        (_matches(text, _ZONE_OF_DATE), of_years),
        (_matches(text, _ISO), _let(_try_cast(f"trim({text})", "timestamp_ntz"), at_midnight)),
    )


def _number_or_iso(per_second: int) -> Callable[[At, ColumnType], Sql]:
    """Configured times: ISO text, or a whole number of units since 1970 (of days for a date)."""

    def read(at: At, kind: ColumnType) -> Sql:
        text = at("string")
        number = case((_matches(text, _WHOLE), _try_cast(text, "bigint")))
        of_number = (
            _date(number)
            if kind.spark == "date"
            else _cast(_instant(number, per_second), kind.spark)
        )
        return f"coalesce({of_number}, {_iso(at, kind)})"

    return read


# --- decimals of Kafka Connect


def _unscaled(binary: Sql) -> Sql:
    """Big-endian two's complement of up to 16 bytes as DECIMAL(38,0), else null (R3)."""
    two_64, mask = (_cast(f"'{number}'", "decimal(20,0)") for number in (2**64, 2**64 - 1))

    def half(digits: Sql, start: int) -> Sql:
        return _cast(f"conv(substring({digits}, {start}, 16), 16, 10)", "decimal(20,0)")

    def magnitude(high: Sql, low: Sql) -> Sql:
        return f"try_add(try_multiply({high}, {two_64}), {low})"

    def number(digits: Sql) -> Sql:
        high, low = half(digits, 1), half(digits, 17)
        # n is -1 - ~n: through the magnitude, as high * 2^64 alone may be beyond 38 digits, and
        # by subtraction, as Spark's negation rounds to 34 digits.
        flipped = magnitude(f"({mask} - {high})", f"({mask} - {low})")
        below = f"try_subtract(CAST(-1 AS decimal(1,0)), {flipped})"
        value = case((_is_negative(digits), below), otherwise=magnitude(high, low))
        return _cast(value, "decimal(38,0)")

    def filled(digits: Sql) -> Sql:
        filler = case((_is_negative(digits), "'F'"), otherwise="'0'")
        return f"lpad({digits}, 32, {filler})"

    fits = f"length({binary}) BETWEEN 1 AND 16"
    return _let(_let(case((fits, f"hex({binary})")), filled), number)


def _is_negative(digits: Sql) -> Sql:
    return f"substring({digits}, 1, 1) >= '8'"


def _unscaled_text(binary: Sql) -> Sql:
    """Big-endian two's complement of any length as decimal text."""

    def text(number: Sql) -> Sql:
        is_bounded = f"length({number}) BETWEEN 1 AND {_MAX_NUMBER_BYTES}"
        long = case((is_bounded, _long_digits(number)))
        return f"coalesce({_cast(_unscaled(number), 'string')}, {long})"

    return _let(binary, text)


_LIMB = 1_000_000_000


def _long_digits(binary: Sql) -> Sql:
    """Decimal text of two's complement beyond 38 digits, which no Spark type holds.

    Horner's rule on limbs of nine decimal digits, lowest first, over 28 bits at a time: a limb
    times 2^28 with its carry stays within int64, and the carry within one limb.
    """

    def times_plus(limbs: Sql, factor: int, carry: Sql) -> Sql:
        def split(value: Sql) -> Sql:
            limbs = f"concat(done.limbs, array({value} % {_LIMB}L))"
            return f"named_struct('limbs', {limbs}, 'carry', {value} div {_LIMB}L)"

        step = _let(f"limb * {factor}L + done.carry", split)
        start = (
            "named_struct('limbs', CAST(array() AS array<bigint>), "
            f"'carry', CAST({carry} AS bigint))"
        )
        end = "concat(done.limbs, array(done.carry))"
        return f"aggregate({limbs}, {start}, (done, limb) -> {step}, done -> {end})"

    def digits(number: Sql) -> Sql:
        flipped = f"translate({number}, '0123456789ABCDEF', 'FEDCBA9876543210')"
        magnitude = case((_is_negative(number), flipped), otherwise=number)
        width = f"CAST((length({number}) + 6) div 7 * 7 AS int)"
        chunks = (
            f"transform(regexp_extract_all(lpad({magnitude}, {width}, '0'), '(.{{7}})', 1), "
            "part -> CAST(conv(part, 16, 10) AS bigint))"
        )
        # -n is ~n + 1.
        one = case((_is_negative(number), "1"), otherwise="0")
        limbs = (
            f"aggregate({chunks}, array(0L), "
            f"(so_far, chunk) -> {times_plus('so_far', 2**28, 'chunk')})"
        )
        parts = (
            f"transform(reverse({times_plus(limbs, 1, one)}), "
            "part -> lpad(CAST(part AS string), 9, '0'))"
        )
        text = f"trim(LEADING '0' FROM concat_ws('', {parts}))"
        sign = case((_is_negative(number), "'-'"), otherwise="''")
        return f"concat({sign}, {text})"

    return _let(f"hex({binary})", digits)


def _with_point(unscaled: Sql, scale: Sql) -> Sql:
    """Exact text of ``unscaled * 10^-scale``."""

    def pointed(digits: Sql) -> Sql:
        cut = f"length({digits}) - {scale}"
        return (
            f"concat(substring({digits}, 1, {cut}), '.', substring({digits}, {cut} + 1, {scale}))"
        )

    def text(number: Sql) -> Sql:
        sign = case((f"startswith({number}, '-')", "'-'"), otherwise="''")
        digits = f"trim(LEADING '-' FROM {number})"
        width = f"greatest(length({digits}), {scale} + 1)"
        fraction = _let(f"lpad({digits}, {width}, '0')", pointed)
        zeros = case((f"{digits} = '0'", "0"), otherwise=f"greatest(-({scale}), 0)")
        whole = f"concat({digits}, repeat('0', {zeros}))"
        return f"concat({sign}, {case((f'{scale} > 0', fraction), (f'{scale} <= 0', whole))})"

    return _let(unscaled, text)


def _decimal_value(at: At, kind: ColumnType) -> Sql:
    """Base64 of the unscaled bytes, or a JSON number (decimal.format NUMERIC)."""
    coded = at.is_string
    binary, scale = _from_base64(at("string")), f"({kind.scale})"
    if kind.spark == "string":
        of_bytes = _with_point(_unscaled_text(binary), scale)
        return case((coded, of_bytes), otherwise=_let(_number_text(at), _long_number(kind.scale)))
    of_bytes = _with_point(_cast(_unscaled(binary), "string"), scale)
    branches = [(coded, _try_cast(of_bytes, kind.spark))]
    if kind.scale in range(_DIGITS_OF_SHORT + 1):
        is_short = f"length({at('string')}) IN (4, 8) AND {coded}"
        branches.insert(0, (is_short, _short_decimal(binary, kind)))
    return case(*branches, otherwise=_exact(_number_text(at), kind.spark))


_DIGITS_OF_SHORT = 15  # of six bytes, which is what eight characters of base64 hold


def _short_decimal(binary: Sql, kind: ColumnType) -> Sql:
    """Up to six bytes, by arithmetic of int64: most decimals, in a third of the time."""
    digits, scale = f"hex({binary})", kind.scale
    two_to_width = f"shiftleft(1L, 4 * length({digits}))"
    below = case((_is_negative(digits), two_to_width), otherwise="0L")
    unscaled = f"({_cast(f'conv({digits}, 16, 10)', 'bigint')} - {below})"
    whole = _cast(unscaled, f"decimal({_DIGITS_OF_SHORT},0)")
    unit = _cast(f"'1E-{scale}'", f"decimal({max(scale, 1)},{scale})")
    return _try_cast(f"{whole} * {unit}", kind.spark)


def _long_number(scale: int) -> Callable[[Sql], Sql]:
    """A JSON number with as many decimals as its base64 form would have."""
    places = min(max(scale, 0), MAX_DECIMAL)

    def text(number: Sql) -> Sql:
        fixed = _cast(_exact(number, f"decimal({MAX_DECIMAL},{places})"), "string")
        as_sent = case((_matches(number, r"^-?[\d.]+$"), number))
        return f"coalesce({fixed}, {as_sent})"

    return text


def _variable_decimal(at: At, _: ColumnType) -> Sql:
    scale = get(at("variant"), "$.scale", "int")
    coded = get(at("variant"), "$.value", "string")
    return _let(
        case((f"{scale} BETWEEN {-MAX_SCALE} AND {MAX_SCALE}", scale)),
        lambda places: _with_point(_unscaled_text(_from_base64(coded)), places),
    )


# --- types with members


def _geometry(at: At, _: ColumnType) -> Sql:
    wkb = _from_base64(get(at("variant"), "$.wkb", "string"))
    shape = f"named_struct('wkb', {wkb}, 'srid', {get(at('variant'), '$.srid', 'int')})"
    return case((f"{wkb} IS NOT NULL", shape))


def _array(at: At, kind: ColumnType) -> Sql:
    assert kind.element is not None
    return _all_read(at("array<variant>"), kind.element)


def _map(at: At, kind: ColumnType) -> Sql:
    """A JSON object, or a list of pairs, which is how Connect writes keys that are no text."""
    assert kind.element is not None
    assert kind.key is not None
    key, element = kind.key, kind.element

    def of_parts(parts: Sql) -> Sql:
        keys, values = f"{parts}.keys", f"{parts}.values"
        is_whole = (
            f"{keys} IS NOT NULL AND {values} IS NOT NULL AND NOT exists({keys}, k -> k IS NULL) "
            f"AND size(array_distinct({keys})) = size({keys})"
        )
        return case((is_whole, f"map_from_arrays({keys}, {values})"))

    def read(entries: Sql) -> Sql:
        keys = _all_read(f"transform({entries}, e -> e.key)", key)
        values = _all_read(f"transform({entries}, e -> e.value)", element)
        parts = f"named_struct('keys', {keys}, 'values', {values})"
        return case((f"{entries} IS NOT NULL", _let(parts, of_parts)))

    members = (
        f"transform(map_entries({at('map<string,variant>')}), "
        "e -> named_struct('key', CAST(e.key AS variant), 'value', e.value))"
    )
    if key.wire in ("string", "unknown"):
        return _let(members, read)
    listed = at("array<array<variant>>")
    pairs = f"transform({listed}, p -> named_struct('key', get(p, 0), 'value', get(p, 1)))"
    are_pairs = f"forall({listed}, p -> size(p) = 2)"
    return _let(f"coalesce({members}, {case((are_pairs, pairs))})", read)


def _struct(at: At, kind: ColumnType) -> Sql:
    def read(row: Sql) -> Sql:
        members = (
            f"'m{number}', {_checked(member(row, name), of)}"
            for number, (name, of) in enumerate(kind.members)
        )
        found = f"named_struct({', '.join(members)})"
        return case((f"{members_of(row)} IS NOT NULL", _let(found, whole)))

    def whole(found: Sql) -> Sql:
        fits = " AND ".join(
            f"({found}.m{n}.value IS NOT NULL OR NOT {found}.m{n}.is_sent)"
            for n in range(len(kind.members))
        )
        values = (
            f"{literal(name)}, {found}.m{n}.value" for n, (name, _) in enumerate(kind.members)
        )
        return case((fits, f"named_struct({', '.join(values)})"))

    return _let(at("variant"), read)


def _checked(value: Sql, element: ColumnType) -> Sql:
    is_sent = is_present(value) if element.wire != "nothing" else "false"
    return f"named_struct('value', {read_value(itself(value), element)}, 'is_sent', {is_sent})"


def _all_read(items: Sql, kind: ColumnType) -> Sql:
    """The values, or null where one of them does not fit: part of a list is no value (R4)."""

    def all_or_none(read: Sql) -> Sql:
        is_lost = f"exists({read}, r -> r.is_sent AND r.value IS NULL)"
        return case((f"NOT {is_lost}", f"transform({read}, r -> r.value)"))

    return _let(_each(items, lambda value: _checked(value, kind)), all_or_none)


_READERS: dict[str, Callable[[At, ColumnType], Sql]] = {
    "boolean": _boolean,
    "int": _whole_number,
    "bigint": _whole_number,
    "float": _floating,
    "double": _floating,
    "string": _text,
    "unknown": _text,
    "enum": _enum,
    "enum_label": _enum,
    "set": _set,
    "set_label": _set,
    "bytes": _base64,
    "latin1": lambda at, _: _latin1(at("string")),
    "days": _days,
    "timestamp_ms": _local(1_000),
    "timestamp_us": _local(1_000_000),
    "timestamp_ns": _local(1_000_000_000),
    "instant_ms": lambda at, _: _instant(_integer(at), 1_000),
    "zoned": _iso,
    "iso_timestamp": _iso,
    "iso_date": _iso,
    "time_ms": lambda at, _: f"try_multiply({_integer(at)}, 1000)",
    "time_us": lambda at, _: _integer(at),
    "time_ns": lambda at, _: _floor_by_1000(_integer(at)),
    "decimal": _decimal_value,
    "variable_decimal": _variable_decimal,
    "number": _number,
    "geometry": _geometry,
    "array": _array,
    "map": _map,
    "struct": _struct,
    "held": _held,
    "nothing": lambda _, kind: _null(kind.spark),
    "inferred_double": _inferred_double,
    "any_date": _number_or_iso(1_000),
    "any_instant": _number_or_iso(1_000),
    "any_local": _number_or_iso(1_000),
    **{
        f"{wire}_{unit}": _number_or_iso(per_second)
        for wire in ("any_instant", "any_local")
        for unit, per_second in PER_SECOND.items()
    },
}


# --- keys


def canonical_key(at: At, kind: ColumnType) -> Sql:
    """A key column's value as VARIANT in canonical form (DESIGN, column `key`).

    Integers stay plain numbers; decimals are texts without trailing zeros, bytes base64,
    times ISO text. Null where the column can't hold the value.
    """
    if "<" in kind.spark:
        return at("variant")
    if kind.wire == "held" and kind.spark == "string" and kind.element is not None:
        sent = kind.element.spark
        if decimal_parts(sent):
            return _cast(plain_text(read_value(at, kind.element), sent), "variant")
    value = read_value(at, kind)
    if is_number(kind.spark):
        # True is no number here: a key has one text.
        value = case((f"{at('string')} NOT IN ('true', 'false')", value))
    if kind.spark in ("int", "bigint", "boolean", "float", "double", "string"):
        return _cast(value, "variant")
    return _cast(plain_text(value, kind.spark), "variant")


def read_key(at: At, column: str) -> Sql:
    """A canonical key value as its table column's type."""
    text = at("string")
    if column == "binary":
        return f"try_to_binary({text}, 'base64')"
    if column in ("int", "bigint"):
        return case((_matches(text, _WHOLE), _try_cast(text, column)))
    if column == "string":
        return f"coalesce({text}, to_json({at('variant')}))"
    return _try_cast(text, column)


# --- columns that grew


def grown(value: Sql, old: DataType, column: str) -> Sql:
    """A value of an older schema as its column's type now: widened, with new members null."""
    if ddl_of(old) == column:
        return value
    if "<" not in column:
        return _cast(value, column)
    return _grown(value, old, DataType.fromDDL(column))


def _grown(value: Sql, old: DataType, new: DataType) -> Sql:
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _each(value, lambda v: _grown(v, old.elementType, new.elementType))
    if isinstance(old, MapType) and isinstance(new, MapType):
        name = _variable(value)
        return (
            f"transform_values({value}, (k, {name}) -> "
            f"{_grown(name, old.valueType, new.valueType)})"
        )
    if isinstance(old, StructType) and isinstance(new, StructType):
        of_old = {field.name: field.dataType for field in old.fields}
        members = (
            f"{literal(field.name)}, "
            + (
                _grown(f"{value}.{quote(field.name)}", of_old[field.name], field.dataType)
                if field.name in of_old
                else _null(ddl_of(field.dataType))
            )
            for field in new.fields
        )
        return case((f"{value} IS NOT NULL", f"named_struct({', '.join(members)})"))
    return _cast(value, ddl_of(new))
