"""A template reads topic, partition, offset and day from a path, and lists what a day needs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pytest

from cdc_assets.cdc.path_templates import PathPlace, PathTemplate

CONFLUENT = "{topic}/year={yyyy}/month={MM}/day={dd}/**/{topic}+{partition}+{offset}*"
DAY = date(2026, 11, 4)


@pytest.mark.parametrize(
    ("template", "path", "place"),
    [
        (
            CONFLUENT,
            "shop.public.t/year=2026/month=11/day=04/shop.public.t+1+0000000040.json.gz",
            PathPlace("shop.public.t", 1, 40, DAY),
        ),
        (
            CONFLUENT,
            "t/year=2026/month=11/day=04/hour=07/t+0+0000000001+0000000009.json",
            PathPlace("t", 0, 1, DAY),
        ),
        (CONFLUENT, "t/year=2026/month=11/day=04/other+0+0000000001.json", None),
        (CONFLUENT, "t/year=2026/month=02/day=30/t+0+0000000001.json", None),
        (
            "{yyyy}-{MM}-{dd}/{topic}-{partition}-{offset}*",
            "2026-11-04/a-b-3-0-12.gz",
            PathPlace("a-b-3", 0, 12, DAY),
        ),
        (
            "{yyyy}/{MM}/{dd}/{HH}/*",
            "2026/11/04/23/stream-1-2026",
            PathPlace(None, None, None, DAY),
        ),
        ("**/{topic}.json", "%2F+ a/b.json", PathPlace("b", None, None, None)),
        ("**/{topic}.json", "b.json", PathPlace("b", None, None, None)),
        ("{topic}/x(1)[a].json", "t/x(1)[a].json", PathPlace("t", None, None, None)),
        ("{topic}/x.json", "t/xyjson", None),
    ],
)
def test_a_path_says_what_its_template_names(
    template: str, path: str, place: PathPlace | None
) -> None:
    assert PathTemplate(template).match(path) == place


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{topics}/*.json", r"got '\{topics\}'; expected \{topic\}"),
        ("{topic/*.json", r"got '\{'"),
        ("/a/*.json", "below the folder"),
        ("a/**", "below the folder"),
        ("", "below the folder"),
        ("a**/b", "expected \\*\\* between two /"),
    ],
)
def test_a_template_that_says_nothing_is_refused(template: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PathTemplate(template)


class Tree:
    """400 days of 24 hours of 20 topics; counts what is listed."""

    def __init__(self) -> None:
        days = [date(2026, 1, 1) + timedelta(days=n) for n in range(400)]
        self.paths = [
            f"t{topic}/year={d.year}/month={d.month:02}/day={d.day:02}/hour={hour:02}/t{topic}+0+{at}.json"
            for topic in range(20)
            for at, d in enumerate(days)
            for hour in range(24)
        ]
        self.listed: list[str] = []

    def names(self, folder: str) -> Iterator[str]:
        self.listed.append(folder)
        below = (path[len(folder) :] for path in self.paths if path.startswith(folder))
        yield from sorted({path.split("/")[0] for path in below})

    def files(self, folder: str, deep: bool) -> Iterator[str]:
        assert deep or folder
        self.listed.append(folder)
        yield from (path for path in self.paths if path.startswith(folder))


def test_a_day_lists_its_own_folders_alone() -> None:
    tree = Tree()
    found = list(PathTemplate(CONFLUENT).paths(tree, DAY))
    assert len(found) == 20 * 24
    own = [f"t{topic}/year=2026/month=11/day=04/" for topic in range(20)]
    assert sorted(tree.listed) == sorted(["", *own])


def test_all_days_are_one_listing() -> None:
    tree = Tree()
    assert len(list(PathTemplate(CONFLUENT).paths(tree, None))) == 400 * 24 * 20
    assert tree.listed == [""]
