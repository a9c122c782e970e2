"""YAML without its traps: keys that are not texts, repeated keys, commas that end a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeAlias

import yaml

# Keys and list indexes from the top of the file down, as pydantic names a place.
YamlPath: TypeAlias = tuple[str | int, ...]

_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}
_DEEPEST = 20
# Messages of PyYAML, and what to do about them.
_CURES = {
    "found character '\\t'": "a tab where YAML allows only spaces; indent with spaces",
    "that cannot start any token": "a value that starts with @, `, % or * needs quotes",
    "expected alphabetic or numeric": "a value that starts with * or & needs quotes",
    "undefined alias": "a value that starts with * needs quotes",
    "mapping values are not allowed": "a value that holds a colon and a space needs quotes; "
    "else look at the indentation",
    "unexpected end of stream": "a quote or a bracket is not closed",
}


@dataclass
class YamlFile:
    """A file's value, its scalars as they are written, and what is wrong with its keys."""

    value: Any = None
    written: dict[YamlPath, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read_yaml(text: str) -> YamlFile:
    """Read one YAML document; each fault is a line with its path in the file."""
    found = YamlFile()
    loader = _Loader(text) if "\0" not in text else None
    if loader is None:
        line = text[: text.index("\0")].count("\n") + 1
        found.faults.append(f"line {line}: not YAML: a NUL character; the file is binary or cut")
        return found
    try:
        node = loader.get_single_node()
        if node is not None:
            _look_at(node, (), found)
            if not found.faults:
                found.value = loader.construct_document(node)
    except yaml.YAMLError as error:
        found.faults = [_broken(error)]
    finally:
        loader.dispose()
    return found


def path_of(place: YamlPath) -> str:
    """`sources.shop.tables.public.orders.key[0]`."""
    path = ""
    for part in place:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def kind_of(value: Any) -> str | None:
    """What YAML reads a scalar as that is not a text; None for all other values."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", date: "a date"}
    return next((kind for type_, kind in kinds.items() if isinstance(value, type_)), None)


class _Loader(yaml.SafeLoader):
    """Leaves an impossible date as a text, so that the setting's own rule reports it."""

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> Any:
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


def _look_at(node: yaml.Node, place: YamlPath, found: YamlFile) -> None:
    if len(place) > _DEEPEST:  # an alias inside its own anchor has no end
        found.faults = [f"{path_of(place[:3])}…: is nested more than {_DEEPEST} levels deep"]
        return
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _look_at(item, (*place, index), found)
    elif isinstance(node, yaml.MappingNode):
        _look_at_mapping(node, place, found)
    else:
        found.written[place] = node.value


def _look_at_mapping(node: yaml.MappingNode, place: YamlPath, found: YamlFile) -> None:
    lines: dict[str, int] = {}
    where = f"{path_of(place)}: " if place else ""
    if cut := _cut_by_comma(node):
        name, whole = cut
        found.faults.append(
            f"{path_of((*place, name))}: got {whole.partition(',')[0]}; a comma ends a value "
            f'inside {{…}}. Write it in quotes: {name}: "{whole}"'
        )
        return
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            found.faults.append(
                f"{where}line {line}: got a list or a mapping as a key; expected a text. A value "
                "that starts with { or [ needs quotes"
            )
            continue
        kind = _KINDS.get(key.tag.rpartition(":")[2])
        if kind or key.tag.endswith(":null"):
            found.faults.append(
                f"{where}line {line}: got the key {key.value}, which YAML reads as "
                f'{kind or "nothing"}; expected a text. Write it in quotes: "{key.value}"'
            )
        if key.value in lines:
            found.faults.append(
                f"{where}the key {key.value!r} is defined twice, in lines {lines[key.value]} and "
                f"{line}; keep one"
            )
        lines[key.value] = line
        _look_at(value, (*place, key.value), found)


def _cut_by_comma(node: yaml.MappingNode) -> tuple[str, str] | None:
    """The key of an unquoted `decimal(10,2)` or `map<string,int>` in a flow mapping, and its text.

    YAML reads `{price: decimal(10,2)}` as two keys, `price` and `2)`.
    """
    if not node.flow_style:
        return None
    for (key, value), (rest, nothing) in zip(node.value, node.value[1:], strict=False):
        parts = (key, value, rest)
        if not all(isinstance(part, yaml.ScalarNode) and not part.style for part in parts):
            continue
        if nothing.value == "" and any(
            value.value.count(opening) > value.value.count(closing) and closing in rest.value
            for opening, closing in ("()", "<>")
        ):
            return key.value, f"{value.value},{rest.value}"
    return None


def _broken(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    cure = next((text for sign, text in _CURES.items() if sign in problem), None)
    where = f"line {mark.line + 1}: " if mark else ""
    return f"{where}not YAML: {f'{cure} ({problem})' if cure else problem}"


def written_of(written: Mapping[YamlPath, str], place: YamlPath, value: Any) -> str:
    """A value as the file has it: texts in quotes, lists and mappings by their kind."""
    if isinstance(value, (list, tuple)):
        return "a list" if value else "[]"
    if isinstance(value, dict):
        return "a mapping" if value else "{}"
    if value is None:
        return "nothing"
    text = written.get(place)
    return repr(value if text is None else text) if isinstance(value, str) else text or str(value)
