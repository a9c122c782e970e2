"""The Java that Spark's scripts start, looked at before Spark is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cdc_assets.cdc.errors import JavaError, first_line

OLDEST = 17  # that Spark 4 runs on
STARTING_SPARK = "starting Spark, about 10 s"  # what is said meanwhile


def java_path() -> str:
    """The `java` that Spark's scripts start: that of JAVA_HOME, else the first in PATH.

    Raises:
        JavaError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        where = f"JAVA_HOME is {home}, and {java} is not there" if home else "no java in PATH"
        raise _java_error(where)
    return java


def require_java() -> str:
    """Which Java it is, as it says itself; a tenth of a second, where Spark would take many.

    Raises:
        JavaError: there is none, or it is too old for Spark.
    """
    java = java_path()
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _java_error(f"{java} can't be run ({first_line(error)})") from error
    said = done.stderr + done.stdout
    version = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = int(version[2] or 0 if version[1] == "1" else version[1]) if version else 0
    # Java also says which options it takes from the environment, before its version.
    lines = [line for line in said.splitlines() if 'version "' in line] or said.splitlines()
    found = f"{lines[0] if lines else 'it printed nothing'}, at {java}"
    if major < OLDEST:
        raise _java_error(found)
    return found


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


def _java_error(found: str) -> JavaError:
    return JavaError(found, f"install a JDK or JRE {OLDEST} or newer, or name it in JAVA_HOME")
