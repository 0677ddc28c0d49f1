"""A server process for the tests: its port, its folder, what fault tests do to it, who cleans up after it.

If this process dies before `close()`, however it dies, a reaper process ends what it started.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

import psutil
from typing_extensions import Self

READY_SECONDS = 30
STOP_SECONDS = 20
LAUNCH_ATTEMPTS = 5


class ServerError(RuntimeError):
    """A server did not start; the message ends with its log."""


class Server:
    """One server process, its port and its folder.

    Subclasses say what it needs on disk (`_prepare`), how to start it (`_argv`) and how to see that it serves
    (`_is_ready`).
    """

    refuses_root: ClassVar[bool] = False
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    immediate_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._identity = _nobody() if self.refuses_root and os.geteuid() == 0 else {}
        self.folder = _new_folder(self._identity.get("user"))
        self.port = 0
        try:
            self._prepare()
            self._launch()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Write what the server needs on disk, once."""

    def _argv(self) -> list[str | Path]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def running(self) -> bool:
        """Whether the process lives; a paused one does."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it on its port with the files it has; nothing happens if it runs."""
        if self.running:
            return
        with (self.folder / "log").open("ab") as log:
            self._process = self._spawn(log)
        _reaper.watch(self._process.pid, int(self.immediate_signal))
        wait_until(self._is_ready_or_dead, f"{type(self).__name__} did not become ready", detail=self._log)
        if not self.running:
            raise ServerError(f"{type(self).__name__} ended while it started:\n{self._log()}")

    def kill(self) -> None:
        """End the server and its children by SIGKILL: what a crash or the out-of-memory killer does."""
        family = self._family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._wait_for(family)

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(self.stop_signal)

    def stop_immediately(self) -> None:
        """Shut down as fast as the server can; Postgres then recovers at its next start."""
        self._end(self.immediate_signal)

    def pause(self) -> None:
        """Freeze the server and its children (SIGSTOP): connections stay open and nobody answers."""
        family = self._family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        wait_until(lambda: all(map(is_stopped, family)), f"{type(self).__name__} did not stop")

    def resume(self) -> None:
        """Undo `pause`."""
        for process in reversed(self._family()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def restart(self) -> None:
        """Stop it cleanly if it runs, then start it on the same port with the same data."""
        self.stop()
        self.start()

    def heal(self) -> Self:
        """Undo what an earlier test did to it: resume a paused server, start a dead one."""
        self.resume()
        self.start()
        return self

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop_immediately()
        shutil.rmtree(self.folder, ignore_errors=True)
        _reaper.forget(self.folder)

    def _launch(self) -> None:
        """First start: another process may take the free port before the server does, so try again."""
        for attempt in range(LAUNCH_ATTEMPTS):
            self.port = free_port()
            try:
                return self.start()
            except ServerError as exc:
                if "in use" not in str(exc) or attempt == LAUNCH_ATTEMPTS - 1:
                    raise
                (self.folder / "log").unlink()

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(word) for word in self._argv()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,  # Ctrl-C goes to pytest alone, which then closes its servers
            **self._identity,
        )

    def _is_ready_or_dead(self) -> bool:
        return not self.running or self._is_ready()

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def _family(self) -> list[psutil.Process]:
        """The process and its children, parent first; empty when it is dead."""
        if not self.running:
            return []
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def _end(self, how: signal.Signals) -> None:
        family = self._family()
        if not family:
            return
        self.resume()  # a stopped process would not see the signal
        family[0].send_signal(how)
        self._wait_for(family)

    def _wait_for(self, family: list[psutil.Process]) -> None:
        if not family:
            return
        assert self._process is not None
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return self.kill()
        wait_until(lambda: all(map(is_gone, family)), f"children of {type(self).__name__} live on")
        _reaper.forget(self._process.pid)


def free_port() -> int:
    """A port that nobody uses, nor the one 10000 above it, which a cluster node needs for its bus.

    Both lie below the range from which the kernel takes ports for outgoing connections.
    """
    dice = random.SystemRandom()  # the global generator is seeded alike in every test process
    while True:
        port = dice.randint(11000, 22000)
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 10000))
            return port


def wait_until(
    is_true: Callable[[], bool], failure: str, seconds: float = READY_SECONDS, detail: Callable[[], str] = str
) -> None:
    """Return as soon as it is true; after so many seconds raise `ServerError`."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise ServerError(f"{failure} in {seconds} s\n{detail()}")
        time.sleep(0.02)


def is_gone(process: psutil.Process) -> bool:
    """Whether it ended; a zombie has, even where nobody collects it."""
    return _status(process) in (None, psutil.STATUS_ZOMBIE)


def is_stopped(process: psutil.Process) -> bool:
    """Whether SIGSTOP has taken effect."""
    return _status(process) in (None, psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)


def _status(process: psutil.Process) -> str | None:
    try:
        return process.status() if process.is_running() else None
    except psutil.NoSuchProcess:
        return None


def _nobody() -> dict[str, Any]:
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _new_folder(owner: int | None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="stepvault-test-"))
    _reaper.watch(folder)
    if owner is not None:
        os.chown(folder, owner, -1)
    return folder


class _Reaper:
    """A child process that ends the servers and removes the folders it was told of once this process is gone.

    A parent-death signal would hang on the thread that started the server, and leave the folders.
    """

    def __init__(self) -> None:
        self._pipe: IO[str] | None = None

    def watch(self, *what: object) -> None:
        self._say("watch", *what)

    def forget(self, *what: object) -> None:
        self._say("forget", *what)

    def _say(self, *words: object) -> None:
        if self._pipe is None:
            argv = [sys.executable, __file__]
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, cwd="/", start_new_session=True)
            assert child.stdin is not None
            self._pipe = child.stdin
            child.returncode = 0  # nobody waits for it: it outlives this process by design
            atexit.register(child.stdin.close)
        print(*words, file=self._pipe, flush=True)


_reaper = _Reaper()


def reap(lines: Iterator[str]) -> None:
    """Read what to watch until the other end is gone, then end it."""
    watched: dict[str, str] = {}
    for line in lines:
        verb, name, *how = line.split()
        if verb == "watch":
            watched[name] = how[0] if how else ""
        else:
            watched.pop(name, None)
    for name, how in watched.items():
        if name.isdecimal():
            _reap_process(int(name), int(how))
    for name in watched:
        shutil.rmtree(name, ignore_errors=True)


def _reap_process(pid: int, how: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
        for process in family:
            process.resume()
        parent.send_signal(how)
        with contextlib.suppress(ServerError):
            wait_until(lambda: all(map(is_gone, family)), "it lives on", STOP_SECONDS)
        for process in family:
            process.kill()


if __name__ == "__main__":
    reap(iter(sys.stdin.readline, ""))
