"""Reading JSON in one pass: strict, exact, in Java, called from Spark's generated code.

The Java beside this file knows JSON and no format. Spark's own compiler compiles it, without a JDK,
when the project is set up or else in the first session; the jar is kept under a name that has the
hash of its source and Spark's version.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql

CATALOG = "cdc_json"
CATALOG_SETTINGS = {f"spark.sql.catalog.{CATALOG}": "cdcassets.json.JsonFunctions"}
_CLASS_FILES = 0o644
_LONG_AGO = (1980, 1, 1, 0, 0, 0)

Wanted = tuple[str, ...]
"""What is wanted of a document's member, and its path."""


def read(value: Sql, /, **columns: Wanted) -> Sql:
    """A call that reads documents of strict JSON.

    Args:
        value: the documents, STRING or BINARY.
        columns: each column's name with what is wanted: ``lsn=("text", "source", "lsn")``. Wanted
            may be `text` (a string itself, the JSON of other values, null of null), `string` (null
            of other values), `json` (canonical), `object` (null of other values), `raw` (an object
            as it stands), `kind` (object, array, string, number, boolean, null), `texts` and
            `items` (the text, the JSON, of each item of a list), `names` and `size` (of an object)
            and `hash` (SHA-256 of the canonical JSON of an object).

    Returns:
        STRUCT of `is_json` (is it exactly one document?) and the columns; null for null.
    """
    specification = [[name, *wanted] for name, wanted in columns.items()]
    text = json.dumps(specification, ensure_ascii=False, separators=(",", ":"))
    return f"{CATALOG}.{quote(text)}({value})"


def names_in(document: Sql) -> Sql:
    """The names of a JSON object's members, as sent; null for anything else."""
    return f"{read(document, names=('names',))}.names"


def values_at(document: Sql, names: Sql) -> Sql:
    """The canonical JSON of an object's members of these names (ARRAY<STRING>), null where none."""
    return f"{CATALOG}.values_at({document}, {names})"


def value_at(document: Sql, name: Sql) -> Sql:
    """The canonical JSON of an object's member, null where it has none of this name."""
    return f"get({values_at(document, f'array({name})')}, 0)"


def pick(names: Sql, objects: Sql, ignored: Sql) -> Sql:
    """The JSON object of some names; null where one of them has no value, or null.

    Args:
        names: ARRAY<STRING>.
        objects: ARRAY<STRING>, JSON objects; the first that has a name counts.
        ignored: ARRAY<STRING>, JSON of values that do not count.
    """
    return f"{CATALOG}.pick({names}, {objects}, {ignored})"


def object_of(names: Sql, values: Sql) -> Sql:
    """The canonical JSON object of names and the JSON of their values; null values are left out."""
    return f"{CATALOG}.object_of({names}, {values})"


def overlay(document: Sql, other: Sql) -> Sql:
    """A JSON object with the values that another one has of the same names."""
    return f"{CATALOG}.overlay({document}, {other})"


def without(document: Sql, names: Sql, prefix: Sql) -> Sql:
    """A JSON object without some members: STRUCT of its `json` and its `size`.

    Args:
        document: the object.
        names: ARRAY<STRING>, the members to leave out.
        prefix: of more names to leave out; null for none.
    """
    return f"{CATALOG}.without({document}, {names}, {prefix})"


# --- the jar


def source_files() -> list[Path]:
    """The Java source."""
    return sorted(Path(__file__).parent.glob("*.java"))


def jar_name() -> str:
    """The jar's name: of another source, or another Spark, it is another one."""
    parts = hashlib.sha256(pyspark.__version__.encode())
    for file in source_files():
        parts.update(file.read_bytes())
    return f"cdc-json-{parts.hexdigest()[:16]}.jar"


def jar_folders() -> Iterator[Path]:
    """Where the jar may be, the first choice first."""
    yield Path(sys.prefix) / "share" / "cdc-assets"
    cache = os.environ.get("XDG_CACHE_HOME")
    yield (Path(cache) if cache else Path.home() / ".cache") / "cdc-assets"


def find_jar() -> Path | None:
    """The compiled jar, if there is one."""
    name = jar_name()
    return next((f / name for f in jar_folders() if (f / name).is_file()), None)


def compile_jar(gateway: Any) -> Path:
    """Compile the source in a JVM of Spark's; returns the jar, in the first folder that takes it.

    Args:
        gateway: of Py4J, to a JVM with Spark's jars.
    """
    with tempfile.TemporaryDirectory(prefix="cdc-json-") as classes:
        _compile(gateway, classes)
        for folder in jar_folders():
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                return _pack(Path(classes), folder / jar_name())
        return _pack(Path(classes), Path(tempfile.mkdtemp(prefix="cdc-json-")) / jar_name())


def _compile(gateway: Any, folder: str) -> None:
    java, files = gateway.jvm.java.io.File, source_files()
    listed = gateway.new_array(java, len(files))
    for number, file in enumerate(files):
        listed[number] = java(str(file))
    compiler = gateway.jvm.org.codehaus.janino.CompilerFactory().newCompiler()
    compiler.setDestinationDirectory(java(folder), False)
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    compiler.compile(listed)


def _pack(classes: Path, jar: Path) -> Path:
    """Write the jar as a whole: another process may look for it, or write it, meanwhile."""
    handle, name = tempfile.mkstemp(dir=jar.parent, prefix=f".{jar.name}.")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as packed:
            for file in sorted(classes.rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(classes).as_posix(), _LONG_AGO)
                packed.writestr(entry, file.read_bytes())
        part.chmod(_CLASS_FILES)
        part.replace(jar)
    finally:
        part.unlink(missing_ok=True)
    return jar
