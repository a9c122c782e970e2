"""Failures of the lake itself: its catalog, its warehouse, its files.

An exception of Spark, Iceberg or a JDBC driver becomes one readable line with a remedy, so that
nobody takes a full disk for bad data. Spark names landed files in its error condition; every other
failure to read or write a file belongs to the lake.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, LakeError
from cdc_assets.cdc.java_errors import Cause, causes, root_cause
from cdc_assets.cdc.redaction import without_secrets

_FILES = (
    "java.io.IOException",
    "java.io.UncheckedIOException",  # Iceberg's RuntimeIOException extends it
    "org.apache.hadoop.fs.FSError",
)
# Java has no classes for errors of the operating system: it appends strerror to the message.
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_REFUSED = (os.strerror(errno.EROFS), os.strerror(errno.EACCES), os.strerror(errno.EPERM))


def is_contention(error: BaseException) -> bool:
    """True for a commit that lost a race or found the catalog busy, and may be retried."""
    return any(map(_is_contention, causes(error)))


def is_conflict(error: BaseException) -> bool:
    """True where a day's files have changed since the writer read the table."""
    conflict = "org.apache.iceberg.exceptions.ValidationException"
    return any(cause.is_a(conflict) for cause in causes(error))


UNREADABLE_FILE = "cdcassets.json.UnreadableFile"  # its message is the path


def is_landing_read(cause: Cause) -> bool:
    """True where Spark reads a landed file, or converts a value of one."""
    if cause.is_a(UNREADABLE_FILE):
        return True
    # 22 is the SQLSTATE class of data exceptions, such as a number out of its column's range.
    return cause.condition.startswith(("FAILED_READ_FILE", "PATH_NOT_FOUND")) or (
        bool(cause.condition) and cause.sql_state.startswith("22")
    )


def lake_error(error: BaseException, config: Config) -> LakeError | None:
    """The failure of the lake behind an exception; None where something else failed."""
    chain = causes(error)
    if any(map(is_landing_read, chain)):
        return None
    for is_so, line in (
        (_is_full, _full),
        (_is_refused, _read_only),
        (_is_contention, _busy),
        (_is_damaged, _damaged),
        (_is_sql, _unreachable),
        (_is_service, _unreachable),
        (_is_missing_file, _missing_file),
        (_is_file, _failed_file),
    ):
        # The innermost matching cause has the details.
        for cause in reversed(chain):
            if is_so(cause):
                return LakeError(line(config, without_secrets(str(cause), config.secrets)))
    return None


def one_line(error: BaseException, config: Config | None = None, with_values: bool = True) -> str:
    """An error as one line: its own message, that of the lake, or its innermost cause."""
    if isinstance(error, CdcError):
        return str(error)
    known = lake_error(error, config) if config is not None else None
    return str(known) if known is not None else root_cause(error, with_values)


# --- kinds of failures, by class and code


def _is_full(cause: Cause) -> bool:
    return (
        cause.code == "SQLITE_FULL"
        or _has_state(cause, "53100")  # PostgreSQL: disk_full
        or cause.is_a("org.apache.hadoop.hdfs.protocol.QuotaExceededException")
        or (cause.is_a(*_FILES) and cause.message.endswith(_FULL))
    )


def _is_refused(cause: Cause) -> bool:
    return (
        cause.code.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"))
        or _has_state(cause, "25006", "42501")  # read-only transaction, insufficient privilege
        or cause.is_a(
            "java.nio.file.ReadOnlyFileSystemException",
            "java.nio.file.AccessDeniedException",
            "org.apache.hadoop.security.AccessControlException",
            "org.apache.iceberg.exceptions.ForbiddenException",
        )
        or (cause.is_a(*_FILES) and any(words in cause.message for words in _REFUSED))
    )


def _is_contention(cause: Cause) -> bool:
    return (
        cause.is_a("org.apache.iceberg.exceptions.CommitFailedException")
        # When two writers create a namespace at once, the loser finds it on its retry.
        or cause.code.startswith(
            ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_CONSTRAINT_PRIMARYKEY")
        )
        # A unique key twice, a serialization failure, a deadlock, a lock that is not available.
        or _has_state(cause, "23505", "40001", "40P01", "55P03")
    )


def _is_damaged(cause: Cause) -> bool:
    return cause.code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT"))


def _is_sql(cause: Cause) -> bool:
    return cause.is_a("java.sql.SQLException", "org.apache.iceberg.jdbc.UncheckedSQLException")


def _is_service(cause: Cause) -> bool:
    """A catalog that is a server: REST, Hive, Glue."""
    return cause.is_a(
        "org.apache.iceberg.exceptions.RESTException",
        "org.apache.iceberg.exceptions.NotAuthorizedException",
        "org.apache.thrift.TException",
        "software.amazon.awssdk.services.glue.model.GlueException",
    )


def _is_missing_file(cause: Cause) -> bool:
    return cause.is_a("org.apache.iceberg.exceptions.NotFoundException")


def _is_file(cause: Cause) -> bool:
    return cause.is_a(*_FILES)


def _has_state(cause: Cause, *states: str) -> bool:
    return cause.is_a("java.sql.SQLException") and cause.sql_state in states


# --- messages


def _full(config: Config, why: str) -> str:
    rooms = []
    if (folder := _local_warehouse(config)) is not None:
        rooms.append(f"the warehouse {config.lake.warehouse} has {_free(folder)} free")
    scratch = config.spark.get("spark.local.dir") or tempfile.gettempdir()
    rooms.append(f"Spark's scratch folder {scratch} {_free(Path(scratch))}")
    return (
        f"no space is left for the lake ({why}); {', '.join(rooms)}. Make room "
        "(cdc-assets maintain drops what has expired), then run the same again"
    )


def _read_only(config: Config, why: str) -> str:
    return (
        f"the warehouse {config.lake.warehouse} can't be written ({why}). Make it and all in it "
        "writable for this user, or change lake.warehouse, then run the same again"
    )


def _busy(config: Config, why: str) -> str:
    if not config.lake.catalog and not _is_usable(config.lake.sqlite_file):
        return _unreachable(config, why)
    return (
        f"the catalog {_catalog(config)} stays busy ({why}). Wait for other runs, or end the "
        "program that holds it, then run the same again"
    )


def _damaged(config: Config, why: str) -> str:
    return (
        f"the catalog {_catalog(config)} is damaged or not an SQLite database ({why}). Restore the "
        "file from a backup; without one, move the warehouse away and make the days again"
    )


def _unreachable(config: Config, why: str) -> str:
    remedy = (
        "See that its server runs, and that lake.catalog has the right address and user"
        if config.lake.catalog
        else "See that it is a file that this user may read and write"
    )
    return f"the catalog {_catalog(config)} can't be used ({why}). {remedy}"


def _missing_file(config: Config, why: str) -> str:
    return (
        f"a file that belongs to the lake is missing ({why}). Restore the warehouse "
        f"{config.lake.warehouse} from a backup, or drop the table and make its days again"
    )


def _failed_file(config: Config, why: str) -> str:
    folder = _local_warehouse(config)
    if folder is not None and not _is_writable(folder):
        return _read_only(config, why)
    return (
        f"a file of the lake can't be written or read ({why}). See that the warehouse "
        f"{config.lake.warehouse} is there, and that this user may write everywhere in it"
    )


# --- the warehouse and the catalog


def _catalog(config: Config) -> str:
    if not config.lake.catalog:
        return str(config.lake.sqlite_file)
    return config.lake.catalog.get("type") or config.lake.catalog.get("catalog-impl", "")


def _local_warehouse(config: Config) -> Path | None:
    """The warehouse's folder or its nearest existing parent; None if it is not local."""
    if not config.lake.is_local:
        return None
    folder = config.lake.folder
    return next((p for p in (folder, *folder.parents) if p.exists()), None)


def _is_writable(folder: Path) -> bool:
    # Root passes os.access even in a file system that is mounted read-only.
    return os.access(folder, os.W_OK | os.X_OK) and not os.statvfs(folder).f_flag & os.ST_RDONLY


def _is_usable(file: Path) -> bool:
    return file.is_file() and os.access(file, os.R_OK | os.W_OK) and _is_writable(file.parent)


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 1024**2:,.0f} MB"
    except OSError:
        return "an unknown number of MB"
