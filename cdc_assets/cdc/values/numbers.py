"""JSON numbers, and texts of them, as numbers (FORMATS R3): by their digits, never rounded."""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Sql, case
from cdc_assets.cdc.values.column_types import ColumnType
from cdc_assets.cdc.values.expressions import cast, extracted, matches, once, replaced, try_cast
from cdc_assets.cdc.values.json_value import At
from cdc_assets.cdc.values.spark_types import decimal_parts

WHOLE = r"^[+-]?\d+$"
_WHOLE_WITH_POINT = r"^[+-]?\d+\.0+$"
_DECIMAL_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_FRACTION, _EXPONENT = r"\.(\d+)", r"[eE]([+-]?\d{1,9})$"
# What of a number's text is no digit that counts.
_NO_DIGITS = r"^-?0*\.?0*|\.|[eE].*$"
_2_TO_63 = f"{2**63}D"
_DIGITS_OF_A_DOUBLE = 15


def number_held(text: Sql, target: str) -> Sql:
    """A number's text as a number of another type."""
    if target in ("int", "bigint"):
        return once(
            replaced(text, r"\.0+$", ""),
            lambda whole: case((matches(whole, WHOLE), try_cast(whole, target))),
        )
    if target in ("float", "double"):
        return once(text, lambda found: _unrounded(found, target))
    return exact_decimal(text, target)


def _unrounded(text: Sql, target: str) -> Sql:
    """A text as float or double; null for an integer that it would round, or an overflow (R3)."""
    number = try_cast(text, target)
    # A cast to BIGINT stops at the largest one.
    is_same = (
        f"({try_cast(text, 'bigint')} = {try_cast(number, 'bigint')} AND {number} < {_2_TO_63})"
    )
    is_whole, is_word = matches(text, WHOLE), matches(text, r"^-?[A-Z]")
    is_finite = f"abs({number}) < CAST('Infinity' AS double)"
    fits = f"({is_whole} AND {is_same}) OR (NOT {is_whole} AND ({is_finite} OR {is_word}))"
    return case((fits, number))


def exact_decimal(text: Sql, target: str) -> Sql:
    """A number's text as DECIMAL; null where the scale would cut something off."""
    decimals = decimal_parts(target)
    assert decimals is not None, target
    _, scale = decimals

    def fitted(number: Sql) -> Sql:
        fraction = f"length(trim(TRAILING '0' FROM {extracted(number, _FRACTION)}))"
        exponent = f"coalesce({try_cast(extracted(number, _EXPONENT), 'int')}, 0)"
        return case((f"{fraction} - {exponent} <= {scale}", try_cast(number, target)))

    return once(case((matches(text, _DECIMAL_NUMBER), text)), fitted)


def read_integer(at: At, spark: str = "bigint") -> Sql:
    """An integer, also `1.0`; null for a fraction, which a cast would cut."""
    text = at("string")
    return case(
        (matches(text, WHOLE), try_cast(text, spark)),
        (
            matches(text, _WHOLE_WITH_POINT),
            try_cast(f"substring_index({text}, '.', 1)", spark),
        ),
    )


def read_whole_number(at: At, kind: ColumnType) -> Sql:
    """An integer; 1 and 0 of true and false."""
    text = at("string")
    return f"coalesce({read_integer(at, kind.spark)}, {truth_as_number(text, kind.spark)})"


def truth_as_number(text: Sql, spark: str) -> Sql:
    """1 and 0 of true and false, also as text (R3); null of all else."""
    return case((f"{text} IN ('true', 'false')", f"try_cast({text} = 'true' AS {spark})"))


def read_floating(at: At, kind: ColumnType) -> Sql:
    """A double or float; null for an overflow, but not for the text that says infinity."""

    def fitted(value: Sql) -> Sql:
        infinities = (cast(f"'{sign}Infinity'", kind.spark) for sign in ("", "-"))
        is_infinite = f"{value} IN ({', '.join(infinities)})"
        is_said = matches(at("string"), "^[+-]?(?i:infinity)$")
        return case((f"NOT {is_infinite} OR ({is_said} AND {at.is_string})", value))

    truth = truth_as_number(at("string"), kind.spark)
    return f"coalesce({truth}, {once(at(kind.spark), fitted)})"


def read_inferred_double(at: At, kind: ColumnType) -> Sql:
    """A double of a column whose type was inferred; null for an integer that it would round."""
    text = at("string")
    return f"coalesce({_unrounded(text, kind.spark)}, {truth_as_number(text, kind.spark)})"


def number_text(at: At) -> Sql:
    """The digits of a JSON number; null where VARIANT had to round it to a double (R3).

    VARIANT keeps numbers of up to 38 digits without exponent; others become doubles, which
    give back no more than 15 digits as they were.
    """
    text = at("string")
    digits = f"length({replaced(text, _NO_DIGITS, '')})"
    is_rounded = f"({at.is_double} AND {digits} > {_DIGITS_OF_A_DOUBLE})"
    return case((f"NOT {is_rounded}", text))


def read_number(at: At, kind: ColumnType) -> Sql:
    """A configured decimal: a JSON number, or its text."""
    exact = exact_decimal(number_text(at), kind.spark)
    return case(
        (matches(at("string"), _short_number(kind.spark)), try_cast(at("string"), kind.spark)),
        otherwise=f"coalesce({exact}, {truth_as_number(at('string'), kind.spark)})",
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
