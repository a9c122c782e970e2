"""The records in the files of a sink, as Spark's frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import quote as in_url

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from cdc_assets.cdc.added_jars import add_avro
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.lake.schemas import LANDING
from cdc_assets.cdc.landing.avro_records import (
    CaptureContainers,
    ConnectContainers,
    headers_as_json,
)
from cdc_assets.cdc.landing.lines import KEPT_BYTES
from cdc_assets.cdc.landing.record_lines import (
    PLACE_IN_FILES,
    from_csv,
    from_envelopes,
    from_lines,
    from_values,
)
from cdc_assets.cdc.landing.sink_files import SinkDay, SinkFile, SinkFolder
from cdc_assets.cdc.reading_progress import expect
from cdc_assets.cdc.registry.avro import SchemaError
from cdc_assets.cdc.registry.decode import Part
from cdc_assets.cdc.sqltext import Query, local_frame

_LINES = "cdcassets.json.FileRecords"
# As Spark's own file sources have them.
_MOST_BYTES, _OPEN_BYTES = 128 << 20, 4 << 20

# Values without a place: offsets of a day are above those of the days before.
_OFFSETS_OF_A_DAY = 1 << 32
_FILES = (
    "file int, path_topic string, path_partition int, path_offset bigint, landing_date date, "
    "path string, is_tombstones boolean, own_schema int, keys_schema int, headers_schema int"
)
_EPOCH = date(1970, 1, 1)
_AVRO = ".avro"
_ROWS = StructType(
    [*LANDING.fields, StructField("file_number", IntegerType()), StructField("line", LongType())]
)


def files_of(days: Sequence[SinkDay]) -> list[tuple[date, SinkFile]]:
    """The files of some days in order, each once, with the first of its days: `file_number`."""
    found: dict[str, tuple[date, SinkFile]] = {}
    for day in days:
        for file in day.found:
            found.setdefault(file.path, (day.day, file))
    return list(found.values())


@dataclass(frozen=True)
class _Schemas:
    """Avro's schemas, and the index of those of each file, of its keys and of its headers."""

    of_files: Mapping[int, tuple[int | None, int | None, int | None]]
    texts: tuple[str, ...]

    @property
    def of_parts(self) -> dict[Part, list[int]]:
        """The indexes that values have, and those that keys have."""
        return {"value": self._used(0), "key": self._used(1)}

    @property
    def of_headers(self) -> dict[int, str]:
        """The schemas of headers by their index."""
        return {at: self.texts[at] for at in self._used(2)}

    def _used(self, nth: int) -> list[int]:
        found = {indexes[nth] for indexes in self.of_files.values()}
        return sorted(at for at in found if at is not None)


class SinkRecords:
    """Reads files of a sink.

    Args:
        spark: the session.
        folder: the folder that they were listed in.
    """

    def __init__(self, spark: SparkSession, folder: SinkFolder) -> None:
        self.spark, self.folder, self.most = spark, folder, folder.most

    def read(self, days: Sequence[SinkDay]) -> DataFrame:
        """The records of some days: the columns of `LANDING`, and :data:`PLACE_IN_FILES`.

        Where records say the day, `landing_date` is that of the first day that has the file.

        Where paths say no offset, a job counts the lines of each file first; where files are Avro
        containers, one reads their schemas.

        Raises:
            LandingError: a container's schema can't be read.
        """
        expect(bytes=sum(day.bytes for day in days))
        files = files_of(days)
        if not files:
            return local_frame(self.spark, [], _ROWS)
        schemas = self._schemas([file for _, file in files])
        lines = self._lines([file for _, file in files])
        places = self._places(files, lines, schemas)
        try:
            return self._rows(lines.join(F.broadcast(places), "file"), schemas)
        except SchemaError as error:
            raise LandingError(
                self.folder.source,
                f"{self.folder.folder} has Avro containers of a schema that can't be read: {error}",
                self.folder.folder,
            ) from error

    def _schemas(self, files: Sequence[SinkFile]) -> _Schemas:
        """The schemas of the Avro containers among files: a job, where there are any."""
        if not any(_AVRO in file.path for file in files):
            return _Schemas({}, ())
        add_avro(self.spark)
        rows = self._lines(files, schemas="true").collect()
        parts = [(row.value, row.first, row.second) for row in rows]
        texts = sorted({bytes(text).decode() for part in parts for text in part if text})
        numbers = {text: number for number, text in enumerate(texts)}

        def number(schema: bytearray | None) -> int | None:
            return None if schema is None else numbers[bytes(schema).decode()]

        of_files = {
            row.file: (None, number(row.value), None)
            if files[row.file].is_tombstones  # which has keys alone
            else (number(row.value), number(row.first), number(row.second))
            for row in rows
        }
        return _Schemas(of_files, tuple(texts))

    def _lines(self, files: Sequence[SinkFile], schemas: str = "false") -> DataFrame:
        """The lines of files with those of their companions: `FileRecords` of Java."""
        total = sum(file.bytes for file in files)
        share = total // self.spark.sparkContext.defaultParallelism
        listed = [
            " ".join([str(f.bytes), *map(self._option, (f.path, f.keys, f.headers))]) for f in files
        ]
        has_places = "offset" in self.folder.layout.template.variables
        options = {
            "files": "\n".join(listed),
            "most": str(self.most),
            "kept": str(KEPT_BYTES),
            "partition_bytes": str(min(_MOST_BYTES, max(_OPEN_BYTES, share))),
            "schemas": schemas,
            "joined": str(self.folder.layout.reads == "value" and not has_places).lower(),
        }
        return self.spark.read.format(_LINES).options(**options).load()

    def _option(self, path: str | None) -> str:
        return "-" if path is None else in_url(self.folder.url(path), safe="/:")

    def _places(
        self, files: Sequence[tuple[date, SinkFile]], lines: DataFrame, schemas: _Schemas
    ) -> DataFrame:
        """What each file's path says of its records: a row of `_FILES` each."""
        layout = self.folder.layout
        if "offset" in layout.template.variables or layout.reads in ("line", "capture"):
            starts = [file.place.offset or 0 for _, file in files]
        else:
            counted = {row.file: row["count"] for row in lines.groupBy("file").count().collect()}
            starts, of_day = [], dict[date, int]()
            for at, (day, _) in enumerate(files):
                first = (day - _EPOCH).days * _OFFSETS_OF_A_DAY
                starts.append(of_day.setdefault(day, first))
                of_day[day] += counted.get(at, 0)
        topic = self.folder.settings.topic
        rows = [
            (
                at,
                file.place.topic or topic,
                file.place.partition or 0,
                start,
                day,
                file.path,
                file.is_tombstones,
                *schemas.of_files.get(at, (None, None, None)),
            )
            for at, ((day, file), start) in enumerate(zip(files, starts, strict=True))
        ]
        return local_frame(self.spark, rows, _FILES)

    def _rows(self, lines: DataFrame, schemas: _Schemas) -> DataFrame:
        layout, settings = self.folder.layout, self.folder.settings
        placed = Query(lines).select(
            "CASE WHEN NOT is_tombstones THEN value END AS value",
            "CASE WHEN is_tombstones THEN value ELSE first END AS key",
            "second AS headers",
            f"CASE WHEN bytes > {self.most}L THEN bytes END AS long_bytes",
            "path_topic AS topic",
            "path_partition AS partition",
            "path_offset + line AS offset",
            "landing_date",
            "path AS file",
            "file AS file_number",
            "line",
            "own_schema AS value_schema",
            "keys_schema AS key_schema",
            "headers_schema",
        )
        if layout.reads == "capture":
            return CaptureContainers(schemas.texts).rows(placed).plan().to(_ROWS)
        if schemas.texts:
            placed = ConnectContainers(schemas.texts, schemas.of_parts).add_to(placed)
            placed = placed.replace({"headers": headers_as_json(schemas.of_headers)})
        if layout.reads == "value":
            rows = from_values(placed.plan())
        elif layout.reads == "envelope":
            rows = from_envelopes(placed.plan(), settings.encoding == "base64")
        elif layout.reads == "csv":
            rows = from_csv(placed.plan(), settings.fields, settings.encoding != "none")
        else:
            texts = placed.replace({"value": "CAST(value AS string)"}).plan()
            rows = from_lines(texts, "long_bytes", PLACE_IN_FILES)
        return rows.to(_ROWS)
