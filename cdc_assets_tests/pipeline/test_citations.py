"""Every numbered rule of the message formats is named by at least one test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc_assets_tests.paths import REPOSITORY

LAST = {"D": 19, "O": 14, "R": 6, "L": 4, "W": 7, "G": 4}
RULES = [f"{family}{n}" for family, last in LAST.items() for n in range(1, last + 1)]
RANGE = re.compile(r"\b([DORLWG])(\d{1,2})[–-]\1(\d{1,2})\b")


def _cited() -> set[str]:
    found: set[str] = set()
    for file in (REPOSITORY / "cdc_assets_tests").rglob("test_*.py"):
        if file.name == Path(__file__).name:
            continue
        text = file.read_text("utf-8")
        found |= set(re.findall(r"\b[DORLWG]\d{1,2}\b", text))
        for family, first, last in RANGE.findall(text):
            found |= {f"{family}{n}" for n in range(int(first), int(last) + 1)}
    return found


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_named_by_a_test(rule: str) -> None:
    assert rule in _cited()
