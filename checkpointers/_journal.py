"""The journal of erasures: a file outside the database, which outlives its restores."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepvault._core.ids import text_of
from stepvault.errors import ConfigurationError, ErasureError

TOKEN = 16  # bytes

logger = logging.getLogger("stepvault")


class Journal:
    """A JSON object a line, each on disk before what it tells of is done.

    A line that breaks off was being written when the power went or the disk was full: what it tells of was not begun.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f"journal is the path of a file, not {type(path).__name__}.")
        self._path = Path(path)

    def append(self, line: dict[str, Any]) -> None:
        """Add a line, durably.

        Raises:
            ErasureError: The file cannot be written.
        """
        try:
            with self._path.open("a+b") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as exc:
            raise ErasureError(
                f"The journal {self._path} cannot be written: {exc.strerror}. No data was deleted; once it can be "
                "written, resume() goes on with erasures that had begun."
            ) from exc

    def tenants(self) -> list[str]:
        """Every tenant somebody of whom was erased."""
        return list(dict.fromkeys(text_of(bytes.fromhex(line["tenant"])) for line in self.lines()))

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every line.

        Raises:
            ErasureError: One cannot be read, and did not just break off.
        """
        if not self._path.exists():
            return
        for number, line in enumerate(self._path.read_bytes().split(b"\n"), 1):
            if line.strip():
                found = self._read(number, line.rstrip())
                if found is not None:
                    yield found

    def _read(self, number: int, line: bytes) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(line)
            bytes.fromhex(found["tenant"])
            if len(bytes.fromhex(found["token"])) != TOKEN:
                raise ValueError  # a shorter one would be the beginning of others
        except (ValueError, TypeError, KeyError) as exc:
            # A file system may leave NULs where a line was not written any more.
            if line.lstrip(b"\0")[:1] in (b"", b"{") and not line.endswith(b"}"):
                logger.warning("Line %d of the journal %s breaks off; it was never acted on.", number, self._path)
                return None
            raise ErasureError(
                f"Line {number} of the journal {self._path} cannot be read. Nothing was changed: put it back from "
                "a copy of the journal, or take it out if no copy has it, and repeat."
            ) from exc
        return found
