"""The real stack on this machine: PostgreSQL, a Kafka broker, Kafka Connect with Debezium.

Each part is a context manager around plain processes on free loopback ports; what it writes
is in a folder of its own, which goes with it. The jars come from ``scripts/e2e.sh``. Started
as root, PostgreSQL runs as the user `postgres`, as it refuses to run as root.

Logs: `<folder>/<part>.log`. A part that does not start, or ends by itself, raises
:class:`StackError` with the end of its log.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import psycopg
from confluent_kafka.admin import AdminClient
from pyarrow import fs

HERE = Path(__file__).parent
JARS = HERE / ".jars"
REGISTRY, CONVERTERS = HERE / ".registry", HERE / ".converter"
VERSITYGW = HERE / ".versitygw" / "versitygw"
USER, PASSWORD = "reader", "reader-secret-word"  # of the SASL listener


class StackError(RuntimeError):
    """Raised when a part of the stack is missing, does not start or ends by itself."""


_given: set[int] = set()


def free_port() -> int:
    """A loopback port that nobody listens on now, another one each time.

    It lies below those that the system gives to connections: one of these might be taken, or
    given a second time, before its server listens.
    """
    while True:
        port = random.SystemRandom().randrange(15_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def missing_parts() -> list[str]:
    """What this machine lacks to run the stack; empty where all is there."""
    lacks = []
    if not any(JARS.glob("kafka_2.13-*.jar")):
        lacks.append(f"the jars in {JARS}")
    if not any(REGISTRY.glob("*-runner.jar")):
        lacks.append(f"the schema registry in {REGISTRY}")
    if _postgres_bin() is None:
        lacks.append("PostgreSQL's server programs (initdb, postgres)")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        lacks.append("Java")
    return lacks


def wait_for(
    what: str, is_there: Callable[[], Any], seconds: float = 60, every: float = 0.1
) -> Any:
    """The first true answer of `is_there`, asked until the time is up.

    Raises:
        StackError: the time is up; the last exception is its cause.
    """
    until, last = time.monotonic() + seconds, None
    while time.monotonic() < until:
        try:
            if found := is_there():
                return found
        except StackError:
            raise
        except Exception as error:
            last = error
        time.sleep(every)
    raise StackError(f"{what}: not there after {seconds:.0f} s; {last}") from last


@dataclass
class Process:
    """A process group with its log."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | str = "/",
    ) -> Process:
        """Start a command as a group of its own; stdout and stderr are added to its log."""
        who: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
        with log.open("ab") as out:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(env) if env is not None else None,
                start_new_session=True,
                **who,
            )
        return cls(name, log, popen)

    def check(self) -> bool:
        """True while it runs.

        Raises:
            StackError: it has ended by itself.
        """
        if self.popen.poll() is not None:
            text = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
            raise StackError(f"{self.name} ended with {self.popen.returncode}: {self.log}\n{text}")
        return True

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = 20) -> None:
        """End the whole group, by force where it takes longer."""
        for sign, patience in ((how, seconds), (signal.SIGKILL, 10.0)):
            if self.popen.poll() is not None:
                break
            try:
                os.killpg(self.popen.pid, sign)
                self.popen.wait(patience)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break
        self.popen.wait(10)


def _jvm(memory: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    return [
        f"{home}/bin/java" if home else "java",
        f"-Xmx{memory}",
        "-Xms64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ]


def _java(main: str, *arguments: str, memory: str = "512m") -> list[str]:
    return [
        *_jvm(memory),
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        f"{JARS}/*",
        main,
        *arguments,
    ]


class _Part:
    """A part of the stack: a folder, processes, started and stopped as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()


# --- PostgreSQL


def _postgres_bin() -> Path | None:
    """The folder of PostgreSQL's server programs: Debian keeps them off PATH."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr/pgsql").glob("*/bin")]
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    with_server = [f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()]
    return max(with_server, default=None, key=lambda f: float(f.parent.name or 0))


class Postgres(_Part):
    """A server of its own with logical decoding; superuser `postgres`, no password, loopback."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        # Not below `folder`: the user postgres must be able to reach it.
        self.data = Path(tempfile.mkdtemp(prefix="cdc-e2e-postgres-"))
        self._process: Process | None = None

    @property
    def dsn(self) -> str:
        """What psycopg connects with."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection in UTC that commits each statement, unless told otherwise."""
        return psycopg.connect(
            self.dsn, options="-c TimeZone=UTC", **{"autocommit": True, **options}
        )

    def start(self) -> None:
        programs = _postgres_bin()
        if programs is None:
            raise StackError("PostgreSQL's server programs are missing; run scripts/e2e.sh")
        user = "postgres" if os.getuid() == 0 else None
        if user:
            who = pwd.getpwnam(user)
            os.chown(self.data, who.pw_uid, who.pw_gid)
        log = self.folder / "postgres.log"
        made = Process.start(
            "initdb",
            [
                f"{programs}/initdb", "-D", f"{self.data}", "-U", "postgres", "-A", "trust",
                "-E", "UTF8", "--locale=C", "--no-sync",
            ],
            log,
            user,
        )  # fmt: skip
        if made.popen.wait(120):
            made.check()
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            "max_replication_slots": 16,
            "max_wal_senders": 16,
            "fsync": "off",
            "timezone": "UTC",
            "max_prepared_transactions": 4,
        }
        listed = [text for k, v in settings.items() for text in ("-c", f"{k}={v}")]
        command = [f"{programs}/postgres", "-D", f"{self.data}", *listed]
        self._process = Process.start("postgres", command, log, user)
        wait_for("postgres", lambda: self._process and self._process.check() and self._answers())

    def _answers(self) -> bool:
        with self.connect():
            return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGINT)
            self._process = None
        shutil.rmtree(self.data, ignore_errors=True)


# --- the broker


class Broker(_Part):
    """One Kafka node, broker and controller at once.

    `servers` is the plain listener; `sasl_servers` wants SASL/PLAIN as `USER`, `PASSWORD`.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder)
        plain, sasl, controller = free_port(), free_port(), free_port()
        self.servers, self.sasl_servers = f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}"
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="admin" user_{USER}="{PASSWORD}";'
        )
        self._settings: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"PLAIN://{self.servers},SASL://{self.sasl_servers},"
                f"CONTROLLER://127.0.0.1:{controller}"
            ),
            "advertised.listeners": f"PLAIN://{self.servers},SASL://{self.sasl_servers}",
            "listener.security.protocol.map": (
                "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": jaas,
            "log.dirs": f"{folder / 'kafka'}",
            "num.partitions": 1,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # Records of old days must neither expire nor be refused.
            "log.retention.ms": -1,
            "log.message.timestamp.after.max.ms": 9223372036854775807,
            "log.cleaner.backoff.ms": 200,
            "log.cleaner.dedupe.buffer.size": 4_000_000,
            "log.cleaner.threads": 1,
            **settings,
        }
        self._process: Process | None = None

    def start(self) -> None:
        """Start the node; its storage is made the first time."""
        file, log = self.folder / "server.properties", self.folder / "kafka.log"
        if not file.exists():
            file.write_text(_properties(self._settings))
            cluster = "cdc-assets-e2e-bed-id0"
            made = Process.start(
                "kafka-storage",
                _java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)),
                log,
            )
            if made.popen.wait(60):
                made.check()
        self._process = Process.start("kafka", _java("kafka.Kafka", str(file)), log)
        wait_for("kafka", lambda: self._process and self._process.check() and self._answers())

    def _answers(self) -> bool:
        return bool(self.admin().list_topics(timeout=1).brokers)

    def admin(self) -> AdminClient:
        """An administration client of the plain listener, which keeps quiet."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def is_stopped(self) -> bool:
        """True where no process of it is there."""
        return self._process is None

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL)
            self._process = None


def _properties(settings: Mapping[str, Any]) -> str:
    return "".join(f"{k}={str(v).replace(chr(92), chr(92) * 2)}\n" for k, v in settings.items())


# --- the schema registry


class Registry(_Part):
    """Apicurio Registry, its schemas in memory; `url` is of Confluent's interface to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        self.api = f"http://127.0.0.1:{self._port}/apis/registry/v2"
        self._process: Process | None = None

    def start(self) -> None:
        jar = next(REGISTRY.glob("*-runner.jar"), None)
        if jar is None:
            raise StackError("the schema registry is missing; run scripts/e2e.sh")
        here = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}")
        command = [*_jvm("512m"), *here, "-jar", str(jar)]
        self._process = Process.start(
            "registry", command, self.folder / "registry.log", cwd=REGISTRY
        )
        wait_for("registry", lambda: self._process and self._process.check() and self._answers())

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/subjects", timeout=10):
            return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def avro_converters(registry: Registry, ids_in_headers: bool = False) -> dict[str, str]:
    """Options of a connector that writes keys and values as Avro, with their schemas' ids."""
    return {
        # Names of columns and topics that Avro does not have.
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
        **{
            f"{part}.converter{option}": value
            for part in ("key", "value")
            for option, value in {
                "": "io.apicurio.registry.utils.converter.AvroConverter",
                ".apicurio.registry.url": registry.api,
                ".apicurio.registry.auto-register": "true",
                ".apicurio.registry.as-confluent": "true",
                ".apicurio.registry.use-id": "contentId",
                ".apicurio.registry.headers.enabled": str(ids_in_headers).lower(),
            }.items()
        },
    }


# --- an object store


class ObjectStore(_Part):
    """versitygw, a server of S3, over a folder of its own.

    `environment` has what clients of S3 take from theirs: the address and the keys.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = f"127.0.0.1:{free_port()}"
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
        }
        self._log = folder / "requests.log"
        self._process: Process | None = None

    def start(self) -> None:
        if not VERSITYGW.exists():
            raise StackError("versitygw is missing; run scripts/e2e.sh s3")
        objects, about = self.folder / "buckets", self.folder / "metadata"
        objects.mkdir(exist_ok=True)
        about.mkdir(exist_ok=True)
        self._process = Process.start(
            "versitygw",
            [
                str(VERSITYGW), "--port", self.address, "--quiet", "--access-log", str(self._log),
                # Not every file system has the attributes in which it keeps metadata otherwise.
                "posix", "--sidecar", str(about), str(objects),
            ],
            self.folder / "versitygw.log",
            env={"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": PASSWORD},
        )  # fmt: skip
        wait_for("versitygw", lambda: self._process and self._process.check() and self._answers())

    def _answers(self) -> bool:
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=5):
            return True

    def client(self) -> fs.S3FileSystem:
        """PyArrow's file system of it, which may make buckets."""
        return fs.S3FileSystem(
            access_key=USER,
            secret_key=PASSWORD,
            endpoint_override=self.address,
            scheme="http",
            allow_bucket_creation=True,
        )

    def requests(self) -> list[tuple[str, str]]:
        """What it was asked: ``GetObject /bucket/key``, ``ListObjectsV2 /bucket?prefix=…``."""
        lines = self._log.read_text("utf-8").splitlines() if self._log.exists() else []
        found = (re.search(r" s3_(\w+) .*? (/\S*) \d{3} ", line) for line in lines)
        return [(asked[1], unquote(asked[2])) for asked in found if asked]

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


# --- Kafka Connect with Debezium


@dataclass
class Connector:
    """A Debezium connector of a database; `options` are added to what all have."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


class Connect(_Part):
    """One standalone worker of Kafka Connect; connectors are added over its REST interface."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._broker = broker
        self._configs: dict[str, dict[str, str]] = {}
        self._process: Process | None = None

    def start(self) -> None:
        """Start the worker, with the connectors that it had when it was killed."""
        file = self.folder / "connect.properties"
        file.write_text(
            _properties(
                {
                    "bootstrap.servers": self._broker.servers,
                    "listeners": f"http://127.0.0.1:{self.port}",
                    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                    "offset.storage.file.filename": self.folder / "connect.offsets",
                    "offset.flush.interval.ms": 1000,
                    "plugin.discovery": "service_load",
                    "plugin.path": CONVERTERS,
                    # A value that TOAST keeps off the row's page is larger than the default.
                    "producer.max.request.size": 10_000_000,
                    "producer.linger.ms": 5,
                }
            )
        )
        arguments = [str(file)]
        for name, config in self._configs.items():
            own = self.folder / f"{name}.json"
            own.write_text(json.dumps({"name": name, "config": config}))
            arguments.append(str(own))
        command = _java("org.apache.kafka.connect.cli.ConnectStandalone", *arguments, memory="768m")
        self._process = Process.start("connect", command, self.folder / "connect.log")
        wait_for("connect", lambda: self._process and self._process.check() and self._ask("/"))
        for name in self._configs:
            self.wait_running(name)

    def _ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            said = f"connect {path}: {error.code} {error.read().decode(errors='replace')}"
            if error.code in (400, 422):
                raise StackError(said) from error
            raise ConnectionError(said) from error
        return json.loads(text) if text else True

    def add(self, name: str, config: Mapping[str, str]) -> None:
        """Add a connector, or change it, and wait until its task runs."""
        self._configs[name] = dict(config)
        wait_for(
            f"connector {name}",
            lambda: self._ask(f"/connectors/{name}/config", self._configs[name], "PUT"),
        )
        self.wait_running(name)

    def remove(self, name: str) -> None:
        """Remove a connector; its offsets stay, for one of the same name."""
        del self._configs[name]
        self._ask(f"/connectors/{name}", method="DELETE")

    def wait_running(self, name: str) -> None:
        """Wait until the connector's task runs.

        Raises:
            StackError: it failed; with the reason.
        """

        def is_running() -> bool:
            assert self._process is not None
            self._process.check()
            status = self._ask(f"/connectors/{name}/status")
            for part in (status["connector"], *status["tasks"]):
                if part["state"] == "FAILED":
                    raise StackError(f"connector {name} failed: {part['trace'][:3000]}")
            return bool(status["tasks"]) and status["tasks"][0]["state"] == "RUNNING"

        wait_for(f"connector {name}", is_running)

    def check(self) -> None:
        """Raise where the worker or a connector has failed."""
        for name in self._configs:
            self.wait_running(name)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End it in the middle of its work: what was not yet confirmed is sent again."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL)
            self._process = None


def postgres_connector(postgres: Postgres, prefix: str, **options: str) -> dict[str, str]:
    """The configuration of a Debezium connector whose topics start with `prefix`."""
    slot = prefix.replace("-", "_").replace(".", "_")
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": f"{slot}_all",
        "poll.interval.ms": "50",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "2",
        # Rows without a key go to any partition; equal ones of one transaction are told apart
        # by their order, which only one partition keeps.
        "topic.creation.groups": "keyless",
        "topic.creation.keyless.include": r".*\.(audit_log|bag)",
        "topic.creation.keyless.partitions": "1",
        "topic.creation.keyless.replication.factor": "1",
        **{name.replace("__", "-").replace("_", "."): value for name, value in options.items()},
    }


@dataclass
class Stack:
    """All parts, running."""

    folder: Path
    postgres: Postgres
    broker: Broker
    connect: Connect


@contextmanager
def running(folder: Path | None = None) -> Iterator[Stack]:
    """PostgreSQL, broker and Connect, started in this order and stopped in reverse.

    Without a folder the logs stay in a new temporary one only where something failed.
    """
    own = folder or Path(tempfile.mkdtemp(prefix="cdc-e2e-"))
    try:
        with (
            Postgres(own / "postgres") as postgres,
            Broker(own / "broker") as broker,
            Connect(own / "connect", broker) as connect,
        ):
            yield Stack(own, postgres, broker, connect)
    except BaseException:
        print(f"logs of the stack: {own}")
        raise
    if folder is None:
        shutil.rmtree(own, ignore_errors=True)
