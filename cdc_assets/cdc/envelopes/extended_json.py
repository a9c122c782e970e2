"""MongoDB's extended JSON: one text for each id, and documents with numbers that JSON has not.

A value of BSON has several texts: relaxed and strict, of old and new versions
(https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/). The connector writes ids
relaxed into the message key and strict into `after`. An id's canonical text (FORMATS M1) is relaxed
extended JSON of version 2 without blanks; numbers that are equal have one text (M2), and what JSON
has no number for is ``{"$numberDouble":"NaN"}``.
"""

from __future__ import annotations

from cdc_assets.cdc.json_reader import read
from cdc_assets.cdc.sqltext import Sql, base64_of, case, literal

# What needs no other text: a text, a whole number, an ObjectId, true, false, null.
_SIMPLE = r'^(?:"[^"]*"|-?[1-9][0-9]{0,17}|0|\{"\$oid":"[0-9a-f]{24}"\}|true|false|null)$'
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NOT_FINITE = "NaN|-?Infinity"
# All up to a number that JSON has not, of which no part is within a string.
_UP_TO_NOT_FINITE = rf'\G((?:[^"NI-]++|{_STRING}|-(?!I))*+)({_NOT_FINITE})'
_NUMBER = r"-?[0-9][0-9.eE+-]*+"
_NUMBER_ALONE = r"^-?[0-9]+(?:[.][0-9]+)?(?:[eE][+-]?[0-9]{1,4})?$"
_WRAPPED = (
    r'\{"\$number(?:Long|Int|Double|Decimal)":"[^"]*"\}'
    r'|\{"\$date":(?:-?[0-9]+|"[^"]*"|\{"\$numberLong":"-?[0-9]+"\})\}'
    r'|\{"\$binary":"[^"]*","\$type":"?[0-9A-Fa-f]{1,2}"?\}'
    r'|\{"\$binary":\{"base64":"[^"]*","subType":"[0-9A-Fa-f]{1,2}"\}\}'
    r'|\{"\$uuid":"[0-9A-Fa-f-]{32,36}"\}'
)
# In compact JSON no string holds the quotes that such a value begins with.
_TOKEN = rf"{_WRAPPED}|{_STRING}|{_NUMBER}|[^\"0-9-]"
_LAST_MS = 253_402_300_799_999  # of the year 9999
_ZONE = r"([+-]\d\d):?(\d\d)$"


def as_json(text: Sql) -> Sql:
    """A document's text, with the numbers that JSON has not as extended JSON (M3)."""
    may_have = f"contains({text}, 'NaN') OR contains({text}, 'Infinity')"
    wrapped = '$1{"\\$numberDouble":"$2"}'
    mended = f"regexp_replace({text}, {literal(_UP_TO_NOT_FINITE)}, {literal(wrapped)})"
    return case((may_have, mended), otherwise=text)


def id_text(value: Sql, document: Sql) -> Sql:
    """The canonical text of an id.

    Args:
        value: the id's canonical JSON; null where there is none.
        document: the text of a JSON object that has it as `_id`: canonical JSON loses the order of
            members.
    """
    # Doubles are all that BSON has besides whole numbers: nothing is rounded by writing them again.
    as_sent = f"get_json_object({document}, '$._id')"
    text = case((f"startswith({value}, '{{')", as_sent), otherwise=value)
    return case(
        (f"{value} IS NULL", "NULL"),
        (f"{value} RLIKE {literal(_SIMPLE)}", value),
        otherwise=canonical(text),
    )


def plain_id_text(value: Sql) -> Sql:
    """An id as the version before wrote it: of a number that says its type, the digits."""
    digits = read(value, long=("text", "$numberLong"), int=("text", "$numberInt"))
    return f"coalesce({digits}.long, {digits}.int, {value})"


def is_document(text: Sql) -> Sql:
    """Is a canonical id a document of two or more members, whose order counts (M2)?"""
    values = f"{_WRAPPED}|{_STRING}"
    # Without texts, a further member's name is nothing between its signs.
    return f"contains(regexp_replace({text}, {literal(values)}, ''), ',:')"


def canonical(text: Sql) -> Sql:
    """The canonical text of compact extended JSON."""
    tokens = f"regexp_extract_all({text}, {literal(_TOKEN)}, 0)"
    return f"array_join(transform({tokens}, t -> {_token('t')}), '')"


def _token(token: Sql) -> Sql:
    value = f"get(split({token}, '\"'), {{}})"
    number, name = value.format(3), value.format(1)
    date_text = f"regexp_replace({number}, {literal(_ZONE)}, '$1:$2')"
    ms = case(
        (
            f"{name} = '$date' AND {number} = '$numberLong'",
            f"try_cast({value.format(5)} AS bigint)",
        ),
        (f"{token} LIKE '%:\"%'", f"unix_millis(try_cast({date_text} AS timestamp))"),
        otherwise=f"try_cast(regexp_extract({token}, ':(-?[0-9]+)', 1) AS bigint)",
    )
    old_binary = _binary(number, f"regexp_extract({token}, '\"?([0-9A-Fa-f]+)\"?.$', 1)")
    four = literal("04")
    uuid = f"try_to_binary(replace({number}, '-', ''), 'hex')"
    return case(
        (f"startswith({token}, '{{\"$number')", _number(name, number)),
        (f"startswith({token}, '{{\"$date')", _date(ms, token)),
        (f"startswith({token}, '{{\"$binary\":{{')", _binary(value.format(5), value.format(9))),
        (f"startswith({token}, '{{\"$binary')", old_binary),
        (
            f"startswith({token}, '{{\"$uuid')",
            f"coalesce({_binary(base64_of(uuid), four)}, {token})",
        ),
        (f"{token} RLIKE {literal(f'^{_NUMBER}$')}", f"coalesce({_double(token)}, {token})"),
        otherwise=token,
    )


def _number(name: Sql, text: Sql) -> Sql:
    """A number in an object that says its type; as it was sent where its text is no number."""
    finite = case((f"{name} = '$numberDecimal'", _decimal(text)), otherwise=_double(text))
    plain = case(
        (f"{text} RLIKE '^-?(Infinity|NaN)$'", _wrapped(literal("$numberDouble"), text)),
        (f"{text} RLIKE {literal(_NUMBER_ALONE)}", finite),
    )
    return f"coalesce({plain}, {_wrapped(name, text)})"


def _wrapped(name: Sql, text: Sql) -> Sql:
    return f"concat('{{\"', {name}, '\":\"', {text}, '\"}}')"


def _double(text: Sql) -> Sql:
    """A whole number's digits, or the double as Java writes it; null of what is neither."""
    double = f"try_cast({text} AS double)"
    whole = f"try_cast({double} AS bigint)"
    return case(
        (f"{text} RLIKE '^-?[0-9]+$'", f"CAST(try_cast({text} AS decimal(38,0)) AS string)"),
        (f"abs({double}) < 9E18 AND {double} = {whole}", f"CAST({whole} AS string)"),
        (f"abs({double}) < double('Infinity')", f"CAST({double} AS string)"),
    )


_PLACES = 18
# A decimal of so many places is a double's exact value where this divides its digits: 5^18 …
_FIFTHS = 5**_PLACES
# … and what is left, the digits of halves, has at most 53 bits.
_MOST_DIGITS = 2**53 * _FIFTHS


def _decimal(text: Sql) -> Sql:
    """A decimal: as the double that equals it, or without zeros at its end; null of one with more
    than 18 decimal places, or more than 38 digits."""
    places = f"length(regexp_extract({text}, '[.]([0-9]*)', 1))"
    power = f"nullif(regexp_extract({text}, '[eE]([+-]?[0-9]{{1,4}})$', 1), '')"
    fits = f"{places} - coalesce(CAST({power} AS int), 0) <= {_PLACES}"
    exact = f"try_cast({text} AS decimal(38,{_PLACES}))"
    stripped = f"rtrim('0', CAST({exact} AS string))"
    digits = f"try_cast(replace(CAST({exact} AS string), '.', '') AS decimal(38,0))"
    is_double = f"{digits} % {_FIFTHS}L = 0 AND abs({digits}) < {_MOST_DIGITS}"
    return case(
        (f"{text} RLIKE '^-?[0-9]+$'", f"CAST(try_cast({text} AS decimal(38,0)) AS string)"),
        (f"NOT {fits} OR {exact} IS NULL", "NULL"),
        (f"endswith({stripped}, '.')", f"CAST(CAST({exact} AS decimal(38,0)) AS string)"),
        (is_double, _double(text)),
        otherwise=_wrapped(literal("$numberDecimal"), stripped),
    )


def _date(ms: Sql, token: Sql) -> Sql:
    """A time as text of the years 1970 to 9999, else as its milliseconds since 1970."""
    time = f"timestamp_millis({ms})"
    pattern = literal("yyyy-MM-dd'T'HH:mm:ss")
    fraction = case((f"pmod({ms}, 1000) <> 0", f"date_format({time}, '.SSS')"), otherwise="''")
    text = _wrapped("'$date'", f"concat(date_format({time}, {pattern}), {fraction}, 'Z')")
    number = f"concat('{{\"$date\":', {_wrapped(literal('$numberLong'), ms)}, '}}')"
    return case(
        (f"{ms} BETWEEN 0 AND {_LAST_MS}", text),
        (f"{ms} IS NOT NULL", number),
        otherwise=token,
    )


def _binary(base64: Sql, subtype: Sql) -> Sql:
    kind = f"lpad(lower({subtype}), 2, '0')"
    begin, between = literal('{"$binary":{"base64":"'), literal('","subType":"')
    return f"concat({begin}, {base64}, {between}, {kind}, '\"}}}}')"
