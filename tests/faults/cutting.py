"""A way to a server on which a reply can be lost: what was asked is done, and nobody hears of it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit, urlunsplit

_REPLY = 2.0  # seconds within which a server begins to answer


class Cutting:
    """Passes on what clients and one server say; `cut` loses a reply, and its connection with it."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._left = 0
        self.lost = False
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The server's, by way of here."""
        before, at, _ = self._parts.netloc.rpartition("@")
        host = f"127.0.0.1:{self._listening.getsockname()[1]}"
        return urlunsplit(self._parts._replace(netloc=f"{before}{at}{host}"))

    def cut(self, request: int) -> None:
        """Lose the reply to the request with this number from now on; 0: to none."""
        self._left = request

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                server = socket.create_connection((self._parts.hostname, self._parts.port or 0))
                threading.Thread(target=self._between, args=(client, server), daemon=True).start()

    def _between(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, contextlib.suppress(OSError):
            while True:
                for heard in select.select([client, server], [], [])[0]:
                    said = heard.recv(1 << 16)
                    if not said:
                        return
                    (server if heard is client else client).sendall(said)
                    if heard is client and self._left:
                        self._left -= 1
                        if not self._left:
                            self.lost = True
                            select.select([server], [], [], _REPLY)
                            return
