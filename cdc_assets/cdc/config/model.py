"""cdc.yaml as a frozen model: the lake, the sources, and what runs by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from cdc_assets.cdc.config.alerts import AlertsConfig
from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.config.fields import Cron, Settings, conf_text, empty_mapping, local_path
from cdc_assets.cdc.config.sources import SourceConfig
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.places import Places
from cdc_assets.cdc.redaction import secrets_in

_SALT = 16  # characters, at least
_SHORTEST_SECRET = 4  # shorter ones would match in ordinary words


class LakeConfig(Settings):
    """Where the tables live."""

    warehouse: str = "data/warehouse"
    catalog: Annotated[dict[str, str], BeforeValidator(empty_mapping)] = Field(default_factory=dict)
    namespaces: Literal["nested", "flat"] = "nested"

    @property
    def is_named(self) -> bool:
        """True for a warehouse that a REST catalog knows by its name."""
        return self._kind == "rest" and not re.search(r"[/\\:]", self.warehouse)

    @property
    def is_flat(self) -> bool:
        """True where state tables are in one namespace level."""
        return self.namespaces == "flat"

    def places(self, sources: Iterable[str]) -> Places:
        """The places of tables; only the sources' own tables have one yet."""
        # These catalogs keep names in lower case.
        return Places(sources, self.is_flat, folds_case=self._kind in ("glue", "hive"))

    @property
    def _kind(self) -> str:
        kind = self.catalog.get("type") or self.catalog.get("catalog-impl", "").rpartition(".")[2]
        return kind.lower().removesuffix("catalog")

    @property
    def is_local(self) -> bool:
        """True for a warehouse in a folder of this machine."""
        is_url = "://" in self.warehouse and not self.warehouse.startswith("file:")
        return not (is_url or self.is_named)

    @property
    def folder(self) -> Path:
        """The folder of a local warehouse."""
        return local_path(self.warehouse)

    @property
    def sqlite_file(self) -> Path:
        """The embedded catalog, which is in the warehouse itself."""
        return self.folder / "catalog.db"

    @model_validator(mode="after")
    def _catalog_for_remote(self) -> LakeConfig:
        if not self.is_local and not self.catalog:
            raise ValueError(
                f"warehouse {self.warehouse}: the embedded SQLite catalog serves a warehouse on "
                "this machine only; name a catalog in lake.catalog (type: rest | glue | hive | "
                "jdbc, with its uri)"
            )
        return self


class AutomationConfig(Settings):
    """What Dagster starts by itself; its UI can switch each on and off."""

    daily_at: str | None = Field(
        default="01:00", description="When the days that have ended are made; null: never."
    )
    catch_up_days: int = Field(
        default=30,
        ge=1,
        description="At most so many missing days a run of the daily schedule makes.",
    )
    open_day: Cron | None = Field(
        default=None, description="A cron expression: when the open day is made again."
    )
    new_files: bool = Field(
        default=True, description="Make days whose landed files are new or changed."
    )
    conditions: bool = Field(
        default=False,
        description="Dagster's declarative automation: ended days that are missing, and what "
        "stands behind a day that was made again, also by hand.",
    )

    @field_validator("daily_at", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        # YAML reads 01:00 without quotes as a number of minutes.
        is_minutes = isinstance(value, int) and not isinstance(value, bool)
        if is_minutes and 0 <= value < 24 * 60:
            return f"{value // 60:02}:{value % 60:02}"
        if value is not None and not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", str(value)):
            raise PydanticCustomError("time_of_day", "no time")
        return value

    @property
    def daily_cron(self) -> str:
        """`daily_at` as a cron expression."""
        hour, _, minute = (self.daily_at or "01:00").partition(":")
        return f"{int(minute)} {int(hour)} * * *"


class MaintenanceConfig(Settings):
    """When the lake is maintained, and the age of what is removed."""

    cron: Cron | None = Field(
        default=None, description="When the schedule runs, in `timezone`; unset leaves it off."
    )
    snapshot_hours: int = Field(
        default=24, ge=1, description="Younger commits stay: someone may be reading them."
    )
    # Iceberg refuses less than a day: a run that is under way writes before it commits.
    orphan_hours: int = Field(
        default=72, ge=25, description="Younger files stay that no commit knows (yet)."
    )


class Config(Settings):
    """The whole of cdc.yaml."""

    lake: Annotated[LakeConfig, BeforeValidator(empty_mapping)] = LakeConfig()
    spark: Annotated[dict[str, str], BeforeValidator(empty_mapping)] = Field(default_factory=dict)
    start_date: date
    timezone: str = "UTC"
    automation: Annotated[AutomationConfig, BeforeValidator(empty_mapping)] = AutomationConfig()
    maintenance: Annotated[MaintenanceConfig, BeforeValidator(empty_mapping)] = MaintenanceConfig()
    hash_salt: str | None = Field(
        default=None,
        repr=False,
        description="What `hash` puts before a value; a secret, from the environment.",
    )
    alerts: Annotated[AlertsConfig, BeforeValidator(empty_mapping)] = AlertsConfig()
    sources: dict[str, SourceConfig] = Field(min_length=1)

    @field_validator("spark", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(k): conf_text(v) for k, v in value.items()}
        return value

    @field_validator("hash_salt")
    @classmethod
    def _salt(cls, value: str | None) -> str | None:
        if value is not None and len(value) < _SALT:
            raise ValueError(f"got {len(value)} characters; expected a secret of {_SALT} or more")
        return value

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"got {value!r}; expected an IANA name such as UTC or Asia/Shanghai"
            ) from error
        return value

    @field_validator("sources")
    @classmethod
    def _source_names(cls, value: dict[str, SourceConfig]) -> dict[str, SourceConfig]:
        for source in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", source):
                raise ValueError(
                    f"{source!r}: a source's name is letters, digits and _; it names the group, "
                    "the assets and the namespace"
                )
        return value

    @model_validator(mode="after")
    def _salted(self) -> Config:
        for source, settings in self.sources.items():
            for name, table in settings.tables.items():
                if table.hash and self.hash_salt is None:
                    raise ValueError(
                        f"hash_salt: is missing; sources.{source}.tables.{name}.hash needs it. "
                        "Write hash_salt: ${CDC_HASH_SALT} and set the variable to a secret of "
                        f"{_SALT} or more characters. Keep it: with another one all hashes change"
                    )
        return self

    @model_validator(mode="after")
    def _a_place_each(self) -> Config:
        places = self.lake.places(self.sources)
        for source, settings in self.sources.items():
            for table, kind in settings.derived:
                places.take_derived(source, table, kind)
        for source, settings in self.sources.items():
            for table in settings.tables:
                if why := places.fault_of(source, table):
                    fault = f"sources.{source}.tables.{table}: {why}"
                    raise ValueError(fault)
                places.take(source, table)
        return self

    @model_validator(mode="after")
    def _somebody_reads_the_mails(self) -> Config:
        """Alerts of every source must reach someone if e-mail is the only channel."""
        email = self.alerts.email
        if email is None or email.to or self.alerts.channels != ("email",):
            return self
        unread = [source for source in self.sources if not self.mail_owners(source)]
        if unread:
            raise ValueError(
                f"alerts.email.to: is empty, and no owner of {', '.join(unread)} is an e-mail "
                "address; nobody would get the alerts. Name addresses in to, or owners of the "
                "sources"
            )
        return self

    def mail_owners(self, source: str, table: str | None = None) -> tuple[str, ...]:
        """The e-mail addresses among the owners of a source, or of one of its tables."""
        found = [*self.sources[source].owners]
        if table is not None:
            found += self.sources[source].tables[table].owners
        return tuple(dict.fromkeys(owner for owner in found if "@" in owner))

    def start_of(self, source: str, table: str) -> date:
        """The first day of a table: the project's, or the table's own where it is later."""
        own = self.sources[source].tables[table].start_date
        return max(self.start_date, own) if own else self.start_date

    def hint_of_pattern(self, table: str, sources: Iterable[str]) -> str:
        """What a pattern does with a table that is not configured, as the end of a message."""
        for source in sources:
            own = table.removeprefix(f"{source}.") if table.count(".") > 1 else table
            try:
                pattern = self.source(source).pattern_of(own)
            except ConfigError:  # no such source
                continue
            if pattern is None:
                continue
            place = f". The entry {pattern} of sources.{source}.tables"
            entry = self.sources[source].table_patterns[pattern]
            if entry is None:
                return f"{place} is false and excludes {own}"
            if entry.into is not None:
                return f"{place} makes {own} a part of {entry.into}: name that one"
            return (
                f"{place} adopts {own} once {source}.changes has events of it: "
                "make a day without --table first"
            )
        return ""

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets in it, which nothing shown or stored may contain."""
        return frozenset(found for found in self._secrets() if len(found) >= _SHORTEST_SECRET)

    def _secrets(self) -> Iterator[str]:
        yield from secrets_in({**self.spark, **self.lake.catalog})
        yield self.hash_salt or ""
        for settings in self.sources.values():
            if settings.landing.kafka is not None:
                yield from secrets_in(settings.landing.kafka.options)
            if (registry := settings.landing.registry) is not None:
                yield from (registry.password or "", registry.token or "")
            if settings.database is not None:
                yield from secrets_in({"url": settings.database})
                yield Address.parse(settings.database).password or ""
        alerts = self.alerts
        if alerts.webhook is not None:
            yield alerts.webhook.url
            # Webhooks of chats have the secret in the path.
            yield from (part for part in urlsplit(alerts.webhook.url).path.split("/") if part[7:])
            yield from secrets_in({"url": alerts.webhook.url})
            yield from alerts.webhook.headers.values()
        if alerts.slack is not None:
            yield alerts.slack.token
        if alerts.email is not None:
            yield alerts.email.password or ""

    def today(self) -> date:
        """The open day in the project's time zone."""
        return datetime.now(ZoneInfo(self.timezone)).date()

    def fault_of(self, day: date) -> str | None:
        """Why a day can't be made, as a text to follow the day; None where it can."""
        if day < self.start_date:
            return f"is before start_date {self.start_date}; no day is made before it"
        if day > self.today():
            return f"is in the future; today is {self.today()} in {self.timezone}"
        return None

    def end_of(self, day: date) -> datetime:
        """The instant at which a day ends."""
        end = datetime.combine(
            day + timedelta(days=1), datetime.min.time(), ZoneInfo(self.timezone)
        )
        return end.astimezone(timezone.utc)

    def is_open(self, day: date) -> bool:
        """True while more can still land for the day."""
        return datetime.now(timezone.utc) < self.end_of(day)

    def source(self, source: str) -> SourceConfig:
        """The settings of a source.

        Raises:
            ConfigError: there is no such source.
        """
        if source not in self.sources:
            raise ConfigError([f"no source {source!r}; there are {', '.join(self.sources)}"])
        return self.sources[source]
