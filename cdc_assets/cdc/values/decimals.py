"""Decimals of Kafka Connect: base64 of the unscaled number, of any length (FORMATS R3)."""

from __future__ import annotations

from collections.abc import Callable

from cdc_assets.cdc.sqltext import Sql, case, get
from cdc_assets.cdc.values.column_types import MAX_DECIMAL, MAX_SCALE, ColumnType
from cdc_assets.cdc.values.expressions import cast, from_base64, matches, once, try_cast
from cdc_assets.cdc.values.json_value import At
from cdc_assets.cdc.values.numbers import exact_decimal, number_text

_MAX_NUMBER_BYTES = 1_000  # a longer one is no number that a person wrote


def _unscaled(binary: Sql) -> Sql:
    """Big-endian two's complement of up to 16 bytes as DECIMAL(38,0), else null (R3)."""
    two_64, mask = (cast(f"'{number}'", "decimal(20,0)") for number in (2**64, 2**64 - 1))

    def half(digits: Sql, start: int) -> Sql:
        return cast(f"conv(substring({digits}, {start}, 16), 16, 10)", "decimal(20,0)")

    def magnitude(high: Sql, low: Sql) -> Sql:
        return f"try_add(try_multiply({high}, {two_64}), {low})"

    def number(digits: Sql) -> Sql:
        high, low = half(digits, 1), half(digits, 17)
        # n is -1 - ~n: through the magnitude, as high * 2^64 alone may be beyond 38 digits, and
        # by subtraction, as Spark's negation rounds to 34 digits.
        flipped = magnitude(f"({mask} - {high})", f"({mask} - {low})")
        below = f"try_subtract(CAST(-1 AS decimal(1,0)), {flipped})"
        value = case((_is_negative(digits), below), otherwise=magnitude(high, low))
        return cast(value, "decimal(38,0)")

    def filled(digits: Sql) -> Sql:
        filler = case((_is_negative(digits), "'F'"), otherwise="'0'")
        return f"lpad({digits}, 32, {filler})"

    fits = f"length({binary}) BETWEEN 1 AND 16"
    return once(once(case((fits, f"hex({binary})")), filled), number)


def _is_negative(digits: Sql) -> Sql:
    return f"substring({digits}, 1, 1) >= '8'"


def _unscaled_text(binary: Sql) -> Sql:
    """Big-endian two's complement of any length as decimal text."""

    def text(number: Sql) -> Sql:
        is_bounded = f"length({number}) BETWEEN 1 AND {_MAX_NUMBER_BYTES}"
        long = case((is_bounded, _long_digits(number)))
        return f"coalesce({cast(_unscaled(number), 'string')}, {long})"

    return once(binary, text)


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

        step = once(f"limb * {factor}L + done.carry", split)
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

    return once(f"hex({binary})", digits)


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
        fraction = once(f"lpad({digits}, {width}, '0')", pointed)
        zeros = case((f"{digits} = '0'", "0"), otherwise=f"greatest(-({scale}), 0)")
        whole = f"concat({digits}, repeat('0', {zeros}))"
        return f"concat({sign}, {case((f'{scale} > 0', fraction), (f'{scale} <= 0', whole))})"

    return once(unscaled, text)


def read_decimal(at: At, kind: ColumnType) -> Sql:
    """Base64 of the unscaled bytes, or a JSON number (decimal.format NUMERIC)."""
    coded = at.is_string
    binary, scale = from_base64(at("string")), f"({kind.scale})"
    if kind.spark == "string":
        of_bytes = _with_point(_unscaled_text(binary), scale)
        return case((coded, of_bytes), otherwise=once(number_text(at), _long_number(kind.scale)))
    of_bytes = _with_point(cast(_unscaled(binary), "string"), scale)
    branches = [(coded, try_cast(of_bytes, kind.spark))]
    if kind.scale in range(_DIGITS_OF_SHORT + 1):
        is_short = f"length({at('string')}) IN (4, 8) AND {coded}"
        branches.insert(0, (is_short, _short_decimal(binary, kind)))
    return case(*branches, otherwise=exact_decimal(number_text(at), kind.spark))


_DIGITS_OF_SHORT = 15  # of six bytes, which is what eight characters of base64 hold


def _short_decimal(binary: Sql, kind: ColumnType) -> Sql:
    """Up to six bytes, by arithmetic of int64: most decimals, in a third of the time."""
    digits, scale = f"hex({binary})", kind.scale
    two_to_width = f"shiftleft(1L, 4 * length({digits}))"
    below = case((_is_negative(digits), two_to_width), otherwise="0L")
    unscaled = f"({cast(f'conv({digits}, 16, 10)', 'bigint')} - {below})"
    whole = cast(unscaled, f"decimal({_DIGITS_OF_SHORT},0)")
    unit = cast(f"'1E-{scale}'", f"decimal({max(scale, 1)},{scale})")
    return try_cast(f"{whole} * {unit}", kind.spark)


def _long_number(scale: int) -> Callable[[Sql], Sql]:
    """A JSON number with as many decimals as its base64 form would have."""
    places = min(max(scale, 0), MAX_DECIMAL)

    def text(number: Sql) -> Sql:
        fixed = cast(exact_decimal(number, f"decimal({MAX_DECIMAL},{places})"), "string")
        as_sent = case((matches(number, r"^-?[\d.]+$"), number))
        return f"coalesce({fixed}, {as_sent})"

    return text


def read_variable_decimal(at: At, _: ColumnType) -> Sql:
    scale = get(at("variant"), "$.scale", "int")
    coded = get(at("variant"), "$.value", "string")
    return once(
        case((f"{scale} BETWEEN {-MAX_SCALE} AND {MAX_SCALE}", scale)),
        lambda places: _with_point(_unscaled_text(from_base64(coded)), places),
    )
