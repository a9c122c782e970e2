"""`table_from_topic:` — the pattern that finds a record's table in the name of its topic."""

from __future__ import annotations

import re

# The syntax that regular expressions of Java and Python share: Python checks the pattern, Java
# matches it.
_ALIKE = re.compile(
    r"""( \\[dDwWsSbB] | \\[^A-Za-z0-9]                      # classes, quoted characters
    | \((?!\?) | \(\?(:|=|!|<=|<!|<[A-Za-z][A-Za-z0-9]*>) | \)  # groups
    | \[\^?(\\[dDwWsS]|\\[^A-Za-z0-9]|[^]\[\\&])+\]
    | \{\d+(,\d*)?\} | [^]\\()\[{}]
    )*""",
    re.VERBOSE,
)


def topic_groups(pattern: str) -> dict[str, int]:
    """The numbers of a pattern's named groups.

    Raises:
        ValueError: it is no pattern of tables.
    """
    alike = _ALIKE.match(pattern)
    if alike is None or alike.end() < len(pattern):
        rest = pattern[alike.end() if alike else 0 :]
        raise ValueError(
            f"got {pattern!r}, whose part {rest!r} is not understood; use groups, named as in "
            "(?<table>…), character classes and quantifiers"
        )
    try:
        groups = dict(re.compile(re.sub(r"(?<!\\)\(\?<(?=[A-Za-z])", "(?P<", pattern)).groupindex)
    except re.error as error:
        raise ValueError(f"got {pattern!r}, which is not a regular expression: {error}") from error
    if "table" not in groups or not groups.keys() & {"schema", "db"}:
        raise ValueError(
            f"got {pattern!r}; expected groups (?<schema>…) or (?<db>…), and (?<table>…)"
        )
    if unknown := groups.keys() - {"schema", "db", "table"}:
        raise ValueError(
            f"got {pattern!r}, with a group {min(unknown)!r}; groups are schema, db and table"
        )
    return groups
