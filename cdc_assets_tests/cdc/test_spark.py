"""The settings of the Spark session and of its Java."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_assets.cdc.added_jars import AVRO_PACKAGES, KAFKA_PACKAGES, POSTGRESQL_PACKAGES
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.jars import SHA256, artifact_of, check_jars
from cdc_assets.cdc.java import class_archive, class_archive_options, find_java
from cdc_assets.cdc.spark import DELTA_PACKAGES, PACKAGES, spark_conf
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


# -- who can reach it ----------------------------------------------------------------------------


def settings(tmp_path: Path, **spark: str) -> dict[str, str]:
    source = {"none": lakes.source_config(tmp_path)}
    return spark_conf(lakes.config_of(source, tmp_path / "lake", spark=spark))


def test_the_driver_listens_on_loopback_where_its_master_is_local(tmp_path: Path) -> None:
    local = settings(tmp_path, **{"spark.master": "local[2]"})
    assert local["spark.driver.bindAddress"] == local["spark.driver.host"] == "127.0.0.1"
    cluster = settings(tmp_path, **{"spark.master": "spark://h:7077"})
    assert "spark.driver.bindAddress" not in cluster
    own = settings(tmp_path, **{"spark.driver.bindAddress": "0.0.0.0"})
    assert own["spark.driver.bindAddress"] == "0.0.0.0"


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux's /proc")
def test_no_port_of_a_local_session_is_open_to_the_network(spark: SparkSession) -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    java = Path("/proc") / str(gateway.proc.pid)
    inodes = set()
    for process in (java, *_children(java)):
        for handle in (process / "fd").iterdir():
            inodes.update(re.findall(r"socket:\[(\d+)\]", str(handle.readlink())))
    listening = [
        (line.split()[1], version)
        for version in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{version}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[9] in inodes
    ]
    loopback = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
    assert listening, "a driver listens"
    assert [place for place, _ in listening if not place.startswith(loopback)] == []


def _children(process: Path) -> list[Path]:
    """Spark's scripts may leave Java in a process below their own."""
    found = []
    for other in process.parent.glob("[0-9]*"):
        try:
            status = (other / "stat").read_text()
        except OSError:
            continue
        if status.rpartition(")")[2].split()[1] == process.name:
            found.append(other)
    return found


# -- the jars ------------------------------------------------------------------------------------


def test_the_sum_of_every_package_is_known() -> None:
    added = (*KAFKA_PACKAGES, *AVRO_PACKAGES, *POSTGRESQL_PACKAGES, *DELTA_PACKAGES)
    packages = (*PACKAGES, *added)
    assert {artifact_of(package) for package in packages} == SHA256.keys()


def test_a_jar_that_is_not_the_released_one_is_refused(tmp_path: Path) -> None:
    known = next(iter(SHA256))
    own = tmp_path / "of-the-user-1.0.jar"
    own.write_bytes(b"any")
    check_jars([own, tmp_path / f"{known}.jar"])  # which is not there
    for name in (known, f"org.example_{known}"):
        (tmp_path / f"{name}.jar").write_bytes(b"another")
        with pytest.raises(ConfigError, match="is not the released"):
            check_jars([own, tmp_path / f"{name}.jar"])
