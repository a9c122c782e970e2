"""The Java that Spark's scripts start, checked before Spark starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.cdc.errors import JavaError, first_line

# Spark 4.1 supports 17 and 21. From 23 on, Java refuses a call of Hadoop's when Spark starts.
OLDEST, NEWEST = 17, 22
STARTING_SPARK = "starting Spark, about 10 s"
# Package managers install each Java in a subfolder of these.
_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")
_REMEDY = f"install a JDK or JRE 17 or 21 ({OLDEST} to {NEWEST} will do), or name it in JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """A `java` command: its path and version."""

    path: str
    says: str
    major: int  # 0 if unknown

    @property
    def fits(self) -> bool:
        """Whether Spark runs on it."""
        return OLDEST <= self.major <= NEWEST

    def __str__(self) -> str:
        return f"{self.says}, at {self.path}"


def find_java() -> Java:
    """The Java to start Spark with; takes a tenth of a second.

    JAVA_HOME if it is set, else the first in PATH; if that does not fit, another installed one.

    Raises:
        JavaError: there is none that Spark runs on.
    """
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise JavaError(f"JAVA_HOME is {home}, and {java} is not there", _REMEDY)
        found = _java_at(java)
        if not found.fits:
            raise JavaError(f"JAVA_HOME names {found}", _REMEDY)
        return found
    first = shutil.which("java")
    java_first = _java_at(Path(first)) if first else None
    if java_first is not None and java_first.fits:
        return java_first
    for installed in _installed():
        beside = _java_at(installed / "bin" / "java")
        if beside.fits:
            return beside
    raise JavaError(str(java_first) if java_first else "no java in PATH", _REMEDY)


def require_java() -> Java:
    """As :func:`find_java`; sets JAVA_HOME so that subprocesses find the same."""
    java = find_java()
    first = shutil.which("java")
    if "JAVA_HOME" not in os.environ and java.path != first:
        os.environ["JAVA_HOME"] = str(Path(java.path).parent.parent)
    return java


def _java_at(java: Path) -> Java:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(str(java), f"can't be run ({first_line(error)})", 0)
    output = done.stderr + done.stdout
    version = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    major = int(version[2] or 0 if version[1] == "1" else version[1]) if version else 0
    # Java prints options from the environment before its version.
    lines = [line for line in output.splitlines() if 'version "' in line] or output.splitlines()
    return Java(str(java), lines[0] if lines else "it printed nothing", major)


def _installed() -> list[Path]:
    """The homes of installed Javas whose `release` file has a fitting version, oldest first."""
    homes = [home for folder in _FOLDERS for home in _homes_in(Path(folder))]
    fitting = [(version, home) for home in homes if (version := _release(home)) is not None]
    # Spark is tested most on the oldest.
    return [home for _, home in sorted(fitting)]


def _homes_in(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        for home in (entry, entry / "Contents" / "Home"):
            if os.access(home / "bin" / "java", os.X_OK):
                yield home


def _release(home: Path) -> int | None:
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.M)
    major = int(version[1]) if version else 0
    return major if OLDEST <= major <= NEWEST else None


def class_archive() -> Path:
    """The path of this environment's class data archive, which `cdc_assets.warm` makes.

    Java maps Spark's classes from it instead of searching 250 jars, which halves the start of a
    session. Java itself checks the archive against its own version and the jars.
    """
    return Path(sys.prefix) / "share" / "cdc-assets" / "spark-classes.jsa"


def class_archive_options() -> str:
    """Java's options to use the archive; empty if it does not exist."""
    path = class_archive()
    if not path.is_file():
        return ""
    # Java ignores an archive of another Java or other jars; the log options hide its warning.
    return f'"-XX:SharedArchiveFile={path}" -Xlog:cds=off -Xlog:cds+dynamic=off'


_FAILURE = re.compile(r"\b(\w*Exception|\w*Error)\b|^(Unrecognized|Invalid|Could not|Conflicting)")
_NO_FAILURE = re.compile(
    r"^(WARNING|NOTE|Picked up|Using |\s+at |\[\d|Setting |:: |\S+ added"
    r"|Error occurred during initialization)"
)


def first_failure(output: Iterable[str]) -> str:
    """The line with the reason in the output of a JVM that did not start."""
    lines = [line.strip() for line in output if line.strip() and not _NO_FAILURE.match(line)]
    failures = [line for line in lines if _FAILURE.search(line)]
    return ([*failures, *lines] or ["it said nothing"])[0][:300]
