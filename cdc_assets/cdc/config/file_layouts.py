"""How the files of a landing are named, and what a line of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field, model_validator

from cdc_assets.cdc.config.fields import Settings
from cdc_assets.cdc.path_templates import PathTemplate

FileLayoutName = Literal["daily", "confluent", "aiven", "eventhubs"]
Record = Literal["line", "value", "envelope"]
RecordField = Literal["key", "value", "offset", "timestamp"]

DAILY: FileLayoutName = "daily"
FILE_LAYOUTS = ("daily", "confluent", "aiven", "eventhubs")
TABLE_LAYOUTS = ("kafka", "redpanda")

# What is asked of the sinks where their paths name no day.
_NO_DAY = (
    "no path names its day ({yyyy}, {MM}, {dd}). Let the sink write days into its paths "
    "(Confluent: partitioner.class=…DailyPartitioner; Aiven: file.name.template with "
    "{{timestamp:unit=yyyy}}, MM and dd) and give such a path, or say day: value, timestamp (the "
    "record's) or modified (when a file was last written)"
)


@dataclass(frozen=True)
class FileLayout:
    """How a sink names its files, and what they hold.

    Args:
        name: for messages and commits.
        template: the path of a file with records.
        tombstones: the path of a file with the keys of tombstones, if it has such files.
        reads: what a line is: a line as `kcat` writes it, the value alone, an object with value,
            key and more, or fields between commas; or records of Event Hubs Capture.
        has_companions: whether `.keys` and `.headers` files lie beside the values.
    """

    name: str
    template: PathTemplate
    tombstones: PathTemplate | None
    reads: Literal["line", "value", "envelope", "csv", "capture"]
    has_companions: bool

    def has_offsets(self, fields: Sequence[str]) -> bool:
        """Whether records say their own offsets; else they are counted from where a file begins."""
        return self.reads in ("line", "envelope", "capture") or "offset" in fields

    def orders_records(self, fields: Sequence[str]) -> bool:
        """Whether records have a place in Kafka, their own or that of their file's first."""
        return self.has_offsets(fields) or "offset" in self.template.variables


class FileLayoutConfig(Settings):
    """The settings of files that a sink wrote."""

    layout: Literal["kafka", "redpanda", "daily", "confluent", "aiven", "eventhubs"] | None = Field(
        default=None,
        description="Of files: daily, or the sink that wrote them. Of a table: kafka or redpanda.",
    )
    path: str | None = Field(
        default=None, description="How files are named below the folder, with {topic}, {yyyy} …"
    )
    record: Record | None = Field(
        default=None,
        description="What a line of a file is: a record, its value, or an object with value, key …",
    )
    topic: str | None = Field(
        default=None, min_length=1, description="The topic of files that do not say it."
    )
    fields: tuple[RecordField, ...] = Field(
        default=(), description="The fields of a line of Aiven's CSV."
    )
    encoding: Literal["base64", "none"] | None = Field(
        default=None, description="How Aiven's sink wrote keys and values."
    )
    day: Literal["path", "timestamp", "value", "modified"] = Field(
        default="path",
        description="What says the day: the file's path, or when it was last written; the record's "
        "timestamp, or the time in its value.",
    )
    tombstones: Literal["ignore", "modified"] = Field(
        default="ignore",
        description="Tombstones in files of their own: left out, or landed when they were written.",
    )

    @cached_property
    def file_layout(self) -> FileLayout | None:
        """How files are named; None for folders named by day, and where there are no files.

        Raises:
            ValueError: settings that do not go together.
        """
        if self.layout in (None, DAILY, *TABLE_LAYOUTS) and self.path is None:
            self._refuse("record", "topic", "fields", "encoding", "day", "tombstones")
            return None
        if self.layout == DAILY:
            raise ValueError("path: it belongs to a layout of sinks, or stands alone")
        if self.layout != "aiven":
            self._refuse("fields", "encoding", of="layout: aiven")
        if self.layout != "confluent":
            self._refuse("tombstones", of="layout: confluent")
        if self.layout is not None and self.record is not None:
            raise ValueError(f"record: layout {self.layout} says it; leave one of them out")
        found = FileLayout(
            self.layout or "path",
            self._template(),
            PathTemplate(_TOMBSTONES) if self.layout == "confluent" else None,
            self._reads(),
            self.layout == "confluent",
        )
        if self.day == "path" and not found.template.has_day:
            raise ValueError(f"path: {_NO_DAY}")
        if found.reads in ("value", "csv") and not (
            self.topic or "topic" in found.template.variables
        ):
            raise ValueError("topic: no path says it ({topic}); name one for all records")
        return found

    def _refuse(self, *names: str, of: str = "path, or to the layout of a sink") -> None:
        for name in names:
            if name in self.model_fields_set:
                raise ValueError(f"{name}: it belongs to {of}")

    def _template(self) -> PathTemplate:
        if self.path is not None:
            try:
                return PathTemplate(self.path)
            except ValueError as error:
                raise ValueError(f"path: {error}") from error
        by_day = self.day == "path" and self.layout == "confluent"
        return PathTemplate(CONFLUENT_DAYS if by_day else PATHS[str(self.layout)])

    def _reads(self) -> Literal["line", "value", "envelope", "csv", "capture"]:
        if self.layout == "aiven":
            return "csv" if self.fields else "envelope"
        if self.layout == "eventhubs":
            return "capture"
        return "value" if self.layout == "confluent" else self.record or "line"

    @property
    def derives_offsets(self) -> bool:
        """Whether offsets are counted from where files begin: records do not say them."""
        return self.file_layout is not None and not self.file_layout.has_offsets(self.fields)

    @property
    def has_days_of_records(self) -> bool:
        """Whether records say the day, not files."""
        return self.day in ("timestamp", "value")

    @model_validator(mode="after")
    def _one_value(self) -> FileLayoutConfig:
        if self.fields and ("value" not in self.fields or len(set(self.fields)) < len(self.fields)):
            raise ValueError("fields: expected value, and each field once")
        return self


# How the sinks name their files unless they are told otherwise.
CONFLUENT_DAYS = "{topic}/year={yyyy}/month={MM}/day={dd}/**/{topic}+{partition}+{offset}*"
_TOMBSTONES = "{topic}/tombstone/**/{topic}+{partition}+{offset}*"
PATHS = {
    "confluent": "{topic}/**/{topic}+{partition}+{offset}*",
    "aiven": "**/{topic}-{partition}-{offset}*",
    "eventhubs": "*/{topic}/{partition}/{yyyy}/{MM}/{dd}/{HH}/{mm}/{ss}.avro",
}
