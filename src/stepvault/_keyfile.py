"""Files of keys: for their owner's eyes only, and never half written."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from stepvault.errors import ConfigurationError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_keyfile(path: str | os.PathLike[str]) -> str:
    """The text of a key file.

    Raises:
        ConfigurationError: It cannot be read, or others may read it too.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(1 << 20)
    except OSError as exc:
        raise ConfigurationError(f"The key file {name} cannot be read: {exc.strerror}.") from exc
    if os.name == "posix" and mode & _OTHERS:
        raise ConfigurationError(
            f"The key file {name} can be read by others (mode {stat.S_IMODE(mode):04o}); chmod 600 it, and take its "
            "keys for known to whoever had access."
        )
    text = _text(data)
    if text is None:
        raise ConfigurationError(f"The key file {name} is not text of the form id:base64.")
    return text


def write_keyfile(path: str | os.PathLike[str], text: str, *, overwrite: bool) -> None:
    """Write a key file by way of a temporary one beside it.

    Raises:
        ConfigurationError: It exists and must not be replaced, or cannot be written.
    """
    name = os.path.abspath(os.fspath(path))
    fresh = f"{name}.{os.getpid()}.tmp"
    try:
        try:
            _write(fresh, text)
            if overwrite:
                os.replace(fresh, name)
            else:
                os.link(fresh, name)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
        _sync_folder(os.path.dirname(name))
    except FileExistsError as exc:
        raise ConfigurationError(f"{exc.filename2 or exc.filename} exists; nothing was written.") from exc
    except OSError as exc:
        raise ConfigurationError(f"The key file {name} cannot be written: {exc.strerror}.") from exc


def _write(name: str, text: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: str) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:  # its exception would carry the bytes along
        return None
