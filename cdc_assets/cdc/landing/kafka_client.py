"""Kafka's AdminClient in Spark's JVM, with errors that show no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.cdc.added_jars import add_kafka
from cdc_assets.cdc.config import KafkaConfig
from cdc_assets.cdc.errors import LandingError, first_line
from cdc_assets.cdc.java_errors import JAVA_ERRORS, Cause, causes
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.errors import lake_error
from cdc_assets.cdc.landing.kafka_plan import Found, TopicPartition
from cdc_assets.cdc.spark import is_lost


class Client:
    """Kafka's AdminClient, in Spark's JVM; a context manager.

    Raises, in each method:
        LandingError: Kafka does not answer; the message says what to do.
    """

    def __init__(self, spark: SparkSession, source: str, config: KafkaConfig) -> None:
        add_kafka(spark)
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._source, self._config = source, config
        own = {name.removeprefix("kafka."): v for name, v in config.options.items()}
        # Kafka's default timeout is a minute, even for an address where nobody listens.
        timeouts = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
        options = {**timeouts, **own, "bootstrap.servers": config.bootstrap_servers}
        with self._explained():
            self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    def _explained(self) -> Explained:
        return Explained(self._source, self._config)

    def find(self, instants: Iterable[int] = ()) -> Found:
        """The source's topics and their offsets now and at some instants (ms UTC)."""
        with self._explained():
            names = self._names()
            ids, partitions = self._describe(names)
            spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
            first = self._offsets(partitions, spec.earliest())
            end = self._offsets(partitions, spec.latest())
            at = {ms: self._offsets(partitions, spec.forTimestamp(ms)) for ms in set(instants)}
        return Found(
            ids, {p: o for p, (o, _) in first.items()}, {p: o for p, (o, _) in end.items()}, at
        )

    def _names(self) -> list[str]:
        existing = set(self._admin.listTopics().names().get())
        pattern = self._config.topic_pattern
        if pattern is not None:
            names = sorted(n for n in existing if re.fullmatch(pattern, n))
            if not names:
                raise LandingError(
                    self._source,
                    f"no topic matches topic_pattern {pattern!r} at "
                    f"{self._config.bootstrap_servers} ({_some(existing)}). Correct "
                    f"sources.{self._source}.landing.kafka.topic_pattern, or its user's rights",
                )
            return names
        if missing := [n for n in self._config.topics if n not in existing]:
            raise LandingError(
                self._source,
                f"topic {', '.join(missing)} is missing at {self._config.bootstrap_servers} "
                f"({_some(existing)}). Create it, correct "
                f"sources.{self._source}.landing.kafka.topics, or give its user the right to "
                "describe it; topic_pattern takes what there is",
            )
        return list(self._config.topics)

    def _describe(self, names: Sequence[str]) -> tuple[dict[str, str], list[TopicPartition]]:
        described = self._admin.describeTopics(list(names)).allTopicNames().get()
        ids, partitions = {}, []
        for name in names:
            topic = described[name]
            ids[name] = topic.topicId().toString()
            partitions += [(name, int(p.partition())) for p in topic.partitions()]
        return ids, partitions

    def _offsets(
        self, partitions: Sequence[TopicPartition], spec: Any
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp by partition; -1 if Kafka has none."""
        kafka = self._jvm.org.apache.kafka
        places = {place: kafka.common.TopicPartition(*place) for place in partitions}
        committed = kafka.clients.admin.ListOffsetsOptions(
            kafka.common.IsolationLevel.READ_COMMITTED
        )
        request = self._admin.listOffsets(dict.fromkeys(places.values(), spec), committed)
        answers = request.all().get()
        return {
            place: (int(answers[p].offset()), int(answers[p].timestamp()))
            for place, p in places.items()
        }


def _some(names: Iterable[str], most: int = 5) -> str:
    own = sorted(n for n in names if not n.startswith("__"))
    more = f" and {len(own) - most} more" if len(own) > most else ""
    return f"there: {', '.join(own[:most])}{more}" if own else "there is none to be seen"


_SECRET = re.compile(r"jaas|password|secret|token|credential|keystore\.key$", re.IGNORECASE)
_ERRORS = "org.apache.kafka.common.errors"
_DATA_LOSS = "data loss"
_NO_ADDRESS = "No resolvable bootstrap urls"  # message of a ConfigException
_WHY: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        (f"{_ERRORS}.AuthenticationException",),
        "the credentials were refused",
        "correct kafka.sasl.* or kafka.ssl.* in landing.kafka.options, or the variables they name",
    ),
    (
        (f"{_ERRORS}.AuthorizationException",),
        "the user may not do this",
        "give it the rights to describe and read the topics",
    ),
    (
        (
            f"{_ERRORS}.TimeoutException",
            f"{_ERRORS}.DisconnectException",
            "java.util.concurrent.TimeoutException",
            _NO_ADDRESS,
        ),
        "no broker answers",
        "see that it runs, that bootstrap_servers names it, and that kafka.security.protocol is "
        "the listener's",
    ),
    (
        (f"{_ERRORS}.UnknownTopicOrPartitionException", f"{_ERRORS}.UnknownTopicIdException"),
        "a topic has just gone",
        "run again; if it stays away, correct the configuration",
    ),
    (
        (
            f"{_ERRORS}.OffsetOutOfRangeException",
            "org.apache.kafka.clients.consumer.OffsetOutOfRangeException",
            _DATA_LOSS,
        ),
        "records were removed while they were read, by retention or with their topic",
        "run again; the error then names the lost offsets",
    ),
    (
        (
            "org.apache.kafka.common.config.ConfigException",
            "javax.security.auth.login.LoginException",
            "java.lang.IllegalArgumentException",
        ),
        "an option is wrong",
        "correct landing.kafka.options",
    ),
)  # fmt: skip


def _is_data_loss(cause: Cause) -> bool:
    return cause.condition.startswith("KAFKA_DATA_LOSS")


def _signs(cause: Cause) -> set[str]:
    """The signs of `_WHY` in a cause: its classes, `_NO_ADDRESS`, `_DATA_LOSS`."""
    has_no_address = _NO_ADDRESS in cause.message
    return {
        *cause.classes,
        *([_NO_ADDRESS] if has_no_address else ()),
        *([_DATA_LOSS] if _is_data_loss(cause) else ()),
    }


def failed(source: str, config: KafkaConfig, error: Exception) -> LandingError:
    """Kafka's error in one sentence with a remedy, without secrets."""
    chain = causes(error)
    shown = [cause for cause in chain if not cause.is_a("java.util.concurrent.ExecutionException")]
    what = "; ".join(dict.fromkeys(map(str, shown[-2:]))) or first_line(error)
    why, remedy = "Kafka can't be read", "see the log"
    found = set().union(*map(_signs, chain))
    for signs, reason, then in _WHY:
        if not found.isdisjoint(signs):
            why, remedy = reason, then
            break
    text = without_secrets(f"{why} ({what})", config)
    return LandingError(
        source, f"{config.bootstrap_servers}: {text}; nothing was landed. To go on: {remedy}"
    )


def without_secrets(text: str, config: KafkaConfig) -> str:
    """A text without the values of secret options and the quoted parts of these."""
    secrets: set[str] = set()
    for name, value in config.options.items():
        if _SECRET.search(name):
            secrets |= {value, *re.findall(r"""["']([^"']+)["']""", value)}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


class Explained:
    """Turns Kafka's exceptions, whose text may hold secrets, into a :class:`LandingError`.

    If the block also writes to `lake`, exceptions of the lake and of a lost Spark pass unchanged.
    """

    def __init__(self, source: str, config: KafkaConfig, lake: Lake | None = None) -> None:
        self._source, self._config, self._lake = source, config, lake

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if isinstance(error, JAVA_ERRORS) and not self._is_others(error):
            raise failed(self._source, self._config, error) from None

    def _is_others(self, error: Exception) -> bool:
        if self._lake is None or any(map(_is_kafka_error, causes(error))):
            return False
        return is_lost(error) or lake_error(error, self._lake.config) is not None


def _is_kafka_error(cause: Cause) -> bool:
    return _is_data_loss(cause) or any(
        name.startswith(("org.apache.kafka.", "org.apache.spark.sql.kafka010."))
        for name in cause.classes
    )
