"""An Iceberg REST catalog over HTTP, in memory; one that keeps branches and tags, or drops them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableUpdate, update_table_metadata

from cdc_assets_tests import loopback

_UPDATES: TypeAdapter[Any] = TypeAdapter(tuple[TableUpdate, ...])
Name = tuple[str, str]  # namespace, its levels joined by 0x1F, and table


class Books:
    """What the catalog holds. Without `keeps_references`, `main` is the only reference it keeps."""

    def __init__(self, folder: Path, keeps_references: bool) -> None:
        self.folder, self.keeps_references = folder, keeps_references
        self.namespaces: set[str] = set()
        self.tables: dict[Name, tuple[TableMetadata, str]] = {}
        self.lock = Lock()

    def write(self, name: Name, metadata: TableMetadata) -> dict[str, Any]:
        place = Path(metadata.location.removeprefix("file://").removeprefix("file:")) / "metadata"
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{uuid.uuid4().hex}.metadata.json"
        file.write_text(metadata.model_dump_json(), "utf-8")
        self.tables[name] = metadata, str(file)
        return self.answer(name)

    def answer(self, name: Name) -> dict[str, Any]:
        metadata, location = self.tables[name]
        return {
            "metadata-location": location,
            "metadata": json.loads(metadata.model_dump_json()),
            "config": {},
        }

    def create(self, namespace: str, body: Any) -> dict[str, Any]:
        asked = CreateTableRequest.model_validate(body)
        metadata = new_table_metadata(
            asked.table_schema,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            asked.write_order or UNSORTED_SORT_ORDER,
            asked.location or str(self.folder / namespace.replace("\x1f", "/") / asked.name),
            dict(asked.properties),
        )
        return self.write((namespace, asked.name), metadata)

    def commit(self, name: Name, body: Any) -> dict[str, Any] | None:
        """None where a requirement is not met: another commit came first."""
        metadata, location = self.tables[name]
        refs = {ref: found.snapshot_id for ref, found in metadata.refs.items()}
        for requirement in body.get("requirements", ()):
            is_of_reference = requirement["type"] == "assert-ref-snapshot-id"
            if not is_of_reference or not self.keeps_references:
                continue
            if refs.get(requirement["ref"]) != requirement.get("snapshot-id"):
                return None
        updates = [
            update
            for update in body.get("updates", ())
            if self.keeps_references
            or update["action"] not in ("set-snapshot-ref", "remove-snapshot-ref")
            or update["ref-name"] == "main"
        ]
        if not updates:
            return self.answer(name)
        read = _UPDATES.validate_python(updates)
        return self.write(name, update_table_metadata(metadata, read, metadata_location=location))


class _Handler(loopback.Handler):
    books: Books

    def _error(self, code: int, kind: str) -> None:
        self.send_json(code, {"error": {"message": kind, "type": kind, "code": code}})

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")][1:]
        with self.books.lock:
            self._route(parts, body)

    do_GET = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

    def _route(self, parts: list[str], body: Any) -> None:
        books = self.books
        match self.command, parts:
            case "GET", ["config"]:
                self.send_json(200, {"defaults": {}, "overrides": {}})
            case "GET", ["namespaces"]:
                self.send_json(200, {"namespaces": [n.split("\x1f") for n in books.namespaces]})
            case "POST", ["namespaces"]:
                namespace = "\x1f".join(body["namespace"])
                if namespace in books.namespaces:
                    self._error(409, "AlreadyExistsException")
                    return
                books.namespaces.add(namespace)
                self.send_json(200, {"namespace": body["namespace"], "properties": {}})
            case "GET" | "HEAD", ["namespaces", namespace]:
                if namespace not in books.namespaces:
                    self._error(404, "NoSuchNamespaceException")
                    return
                self.send_json(200, {"namespace": namespace.split("\x1f"), "properties": {}})
            case "DELETE", ["namespaces", namespace]:
                books.namespaces.discard(namespace)
                self.send_json(204)
            case "POST", ["namespaces", namespace, "tables"]:
                if (namespace, body["name"]) in books.tables:
                    self._error(409, "AlreadyExistsException")
                    return
                self.send_json(200, books.create(namespace, body))
            case method, ["namespaces", namespace, "tables", table]:
                self._table(method, (namespace, table), body)
            case "POST", ["namespaces", _, "tables", _, "metrics"]:
                self.send_json(204)
            case "GET" | "HEAD", ["namespaces", _, "views", _]:
                self._error(404, "NoSuchViewException")
            case _:
                self._error(404, "NoSuchTableException")

    def _table(self, method: str, name: Name, body: Any) -> None:
        books = self.books
        if name not in books.tables:
            self._error(404, "NoSuchTableException")
        elif method in ("GET", "HEAD"):
            self.send_json(200, books.answer(name))
        elif method == "DELETE":
            del books.tables[name]
            self.send_json(204)
        elif (answer := books.commit(name, body)) is None:
            self._error(409, "CommitFailedException")
        else:
            self.send_json(200, answer)


@contextmanager
def rest_catalog(folder: Path, keeps_references: bool = True) -> Iterator[str]:
    """The address of a catalog whose tables are in a folder."""
    books = Books(folder, keeps_references)
    with loopback.serving(type("Handler", (_Handler,), {"books": books})) as address:
        yield address
