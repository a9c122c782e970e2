"""The Java that Spark's scripts start, looked at before Spark is."""

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

# Spark 4.1 runs on 17 and 21. From 23 on Java refuses what Hadoop asks of it when Spark starts.
OLDEST, NEWEST = 17, 22
STARTING_SPARK = "starting Spark, about 10 s"  # what is said meanwhile
# Where package managers put Javas, each in a folder of its own.
_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")
_REMEDY = f"install a JDK or JRE 17 or 21 ({OLDEST} to {NEWEST} will do), or name it in JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """A `java` that can be run: where, and the version that it says."""

    path: str
    says: str
    major: int  # 0 where it says none

    @property
    def fits(self) -> bool:
        """Whether Spark runs on it."""
        return OLDEST <= self.major <= NEWEST

    def __str__(self) -> str:
        return f"{self.says}, at {self.path}"


def find_java() -> Java:
    """The Java to start Spark with; a tenth of a second, where Spark would take many.

    That of JAVA_HOME where it is set; else the first in PATH; else, where that does not fit, one
    that does and is installed beside it.

    Raises:
        JavaError: there is none, or none that Spark runs on.
    """
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise JavaError(f"JAVA_HOME is {home}, and {java} is not there", _REMEDY)
        found = _asked(java)
        if not found.fits:
            raise JavaError(f"JAVA_HOME names {found}", _REMEDY)
        return found
    first = shutil.which("java")
    found_first = _asked(Path(first)) if first else None
    if found_first is not None and found_first.fits:
        return found_first
    for installed in _installed():
        beside = _asked(installed / "bin" / "java")
        if beside.fits:
            return beside
    raise JavaError(str(found_first) if found_first else "no java in PATH", _REMEDY)


def require_java() -> Java:
    """As :func:`find_java`; what is started from here on finds the same."""
    java = find_java()
    first = shutil.which("java")
    if "JAVA_HOME" not in os.environ and java.path != first:
        os.environ["JAVA_HOME"] = str(Path(java.path).parent.parent)
    return java


def _asked(java: Path) -> Java:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(str(java), f"can't be run ({first_line(error)})", 0)
    said = done.stderr + done.stdout
    version = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = int(version[2] or 0 if version[1] == "1" else version[1]) if version else 0
    # Java also says which options it takes from the environment, before its version.
    lines = [line for line in said.splitlines() if 'version "' in line] or said.splitlines()
    return Java(str(java), lines[0] if lines else "it printed nothing", major)


def _installed() -> list[Path]:
    """The homes of the Javas of this machine whose `release` says a version that fits."""
    homes = [home for folder in _FOLDERS for home in _homes_in(Path(folder))]
    fitting = [(version, home) for home in homes if (version := _release(home)) is not None]
    # The oldest first, which Spark is tried on most.
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
        said = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', said, re.M)
    major = int(version[1]) if version else 0
    return major if OLDEST <= major <= NEWEST else None


def class_archive() -> Path:
    """Where this environment has its class data archive, which `cdc_assets.warm` makes.

    Java maps Spark's classes in from it instead of looking each up in 250 jars: a session stands
    in half the time. Java itself sees whether an archive is of its own version and of these jars.
    """
    return Path(sys.prefix) / "share" / "cdc-assets" / "spark-classes.jsa"


def class_archive_options() -> str:
    """Java's options that use the archive; none where it was not made."""
    path = class_archive()
    if not path.is_file():
        return ""
    # An archive of another Java or of other jars is not used, and nothing is said of it.
    return f'"-XX:SharedArchiveFile={path}" -Xlog:cds=off -Xlog:cds+dynamic=off'


_FAILURE = re.compile(r"\b(\w*Exception|\w*Error)\b|^(Unrecognized|Invalid|Could not|Conflicting)")
_NO_FAILURE = re.compile(
    r"^(WARNING|NOTE|Picked up|Using |\s+at |\[\d|Setting |:: |\S+ added"
    r"|Error occurred during initialization)"
)


def first_failure(said: Iterable[str]) -> str:
    """The line in which a JVM that did not start says why."""
    lines = [line.strip() for line in said if line.strip() and not _NO_FAILURE.match(line)]
    telling = [line for line in lines if _FAILURE.search(line)]
    return ([*telling, *lines] or ["it said nothing"])[0][:300]
