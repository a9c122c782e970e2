"""The settings of the Spark session and of its Java."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets.cdc.java import class_archive, class_archive_options, find_java
from cdc_assets.cdc.spark import spark_conf
from cdc_assets_tests import lakes

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without an archive, in a folder with a space in its name."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))


def java_options(tmp_path: Path, **spark: str) -> str:
    source = {"none": lakes.source_config(tmp_path)}
    return spark_conf(lakes.config_of(source, tmp_path / "lake", spark=spark))[OPTIONS]


def make_archive(content: bytes) -> None:
    class_archive().parent.mkdir(parents=True)
    class_archive().write_bytes(content)


def test_without_an_archive_of_classes_java_gets_no_option_for_it(tmp_path: Path) -> None:
    assert "Archive" not in java_options(tmp_path)


def test_an_archive_of_classes_is_used_beside_the_options_of_the_configuration(
    tmp_path: Path,
) -> None:
    make_archive(b"any")
    options = shlex.split(java_options(tmp_path, **{OPTIONS: "-XX:+UseSerialGC"}))
    assert f"-XX:SharedArchiveFile={class_archive()}" in options
    assert "-XX:+UseSerialGC" in options
    assert "-XX:+UseParallelGC" not in options, "Java does not start with two collectors"


def test_java_runs_without_a_word_where_the_archive_is_not_its_own() -> None:
    make_archive(b"of another Java")
    command = [find_java().path, *shlex.split(class_archive_options())]
    found = subprocess.run([*command, "-version"], capture_output=True, text=True, check=False)
    assert found.returncode == 0
    assert "rchive" not in found.stdout + found.stderr
