"""What texts without a schema look like: times, and decimals of Kafka Connect in base64."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

_INSTANT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)$"
# Words of four letters are base64, too: texts with padding tell more.
_BASE64, _PADDED = "base64", "padded base64"
_IS_BASE64 = "^([A-Za-z0-9+/]{4}){0,5}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
# Bytes of a whole number have no more of its sign than one bit.
_IS_SHORTEST = "^(?!00[0-7]|FF[89A-F])[0-9A-F]{2,32}$"


def looks_of(text: Column, is_text: Column) -> Column:
    """What a text looks like: a type of `columns`, or base64 of a whole number; else null."""
    number = F.hex(F.try_to_binary(text, F.lit("base64")))
    is_number = is_text & text.rlike(_IS_BASE64) & number.rlike(_IS_SHORTEST)
    return (
        F.when(is_text & text.rlike(_INSTANT + _ZONE), "timestamp")
        .when(is_text & text.rlike(_INSTANT + "$"), "timestamp_ntz")
        .when(is_text & text.rlike(r"^\d{4}-\d{2}-\d{2}$"), "date")
        .when(is_number & text.endswith("="), _PADDED)
        .when(is_number, _BASE64)
    )


def hint(looks: Mapping[str, int], texts: int) -> str | None:
    """What to write in `columns` where all texts look alike.

    Args:
        looks: how many look like what.
        texts: how many there are.
    """
    if sum(looks.values()) != texts:
        return None
    if looks.keys() <= {_BASE64, _PADDED} and looks.get(_PADDED):
        return (
            f"all {texts} texts look like base64 of whole numbers, as Kafka Connect sends "
            "decimals; `decimal(38,2,base64)` would read them, with the scale of the source's "
            "column for 2"
        )
    if len(looks) != 1 or _BASE64 in looks:
        return None
    (kind,) = looks
    return f"all {texts} texts look like times; `{kind}` would read them as such"
