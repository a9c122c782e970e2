"""A schema registry as answers saved in a folder.

A file has the path of the request and the ending ``.json``: ``schemas/ids/7.json`` is the answer to
``GET /schemas/ids/7``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cdc_assets.cdc.config import local_path
from cdc_assets.cdc.errors import RegistryError, first_line

_EXPECTED = 'expected what GET /{} answers, {{"schema": "…"}}; save it again, or remove the file'


@dataclass(frozen=True)
class FileRegistry:
    """A :class:`~cdc_assets.cdc.registry.client.Registry` in a folder of this machine."""

    source: str
    folder: Path

    @classmethod
    def open(cls, source: str, place: str) -> FileRegistry:
        """The registry in a folder; `source` is named in errors.

        Raises:
            RegistryError: there is no such folder.
        """
        found = cls(source, local_path(place))
        if not (found.folder / "schemas").is_dir():
            what = "is no folder of saved answers: expected schemas/ids/<id>.json in it"
            raise RegistryError(source, str(found.folder), what)
        return found

    def ask(self, *path: str) -> Mapping[str, Any] | None:
        """The answer with a schema at a path; None if its file is missing."""
        try:
            body = json.loads(self._file(path).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._misfit(path, f"can't be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise self._misfit(path, f"is no JSON ({first_line(error)})") from error
        if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            got = json.dumps(body, ensure_ascii=False)[:60]
            raise self._misfit(path, f"has no schema: got {got}")
        return body

    def inventory(self) -> str | None:
        """The number of schemas; reads each of them."""
        found = [
            file for kind in ("ids", "guids") for file in self.folder.glob(f"schemas/{kind}/*.json")
        ]
        for file in found:
            self.ask("schemas", file.parent.name, file.stem)
        return f"{len(found)} schemas" if found else None

    def error(self, path: Sequence[str], what: str) -> RegistryError:
        """An error that names the file of a path."""
        return RegistryError(self.source, str(self._file(path)), what)

    def _file(self, path: Sequence[str]) -> Path:
        """The file of a path, always within the folder."""
        parts = [_escaped(part) for part in path]
        return self.folder.joinpath(*parts[:-1], f"{parts[-1]}.json")

    def _misfit(self, path: Sequence[str], fault: str) -> RegistryError:
        expected = _EXPECTED.format("/".join(map(_escaped, path)))
        return self.error(path, f"has a saved answer that {fault}; {expected}")


def _escaped(name: str) -> str:
    """A name as in a URL, ``.`` and ``..`` escaped too."""
    return quote(name, safe="") if name.strip(".") else "%2E" * len(name)
