"""No key and no payload in messages, causes, tracebacks (not even with the locals of our frames), logs or pickles."""

from __future__ import annotations

import base64
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepvault._core import identity
from stepvault._core.blind_index import BlindIndex
from stepvault._core.crypto import Aead, Mac, Secret
from stepvault._core.keys import DataKey, Draft
from stepvault._keystore.rotation import rotate
from stepvault.encryption import Keyring
from stepvault.errors import StepvaultError
from tests.unit.encryption.making import OWNER, TENANT, Store

KEK = b"MARKER-key-encryption-key-aaaaaa"
OTHER_KEK = b"MARKER-key-encryption-key-bbbbbb"
DATA_KEY = b"MARKER-data-key-cccccccccccccccc"
PAYLOAD = b"MARKER-payload of the user"
SECRETS = (KEK, OTHER_KEK, DATA_KEY, PAYLOAD)
ROW = identity.thread_id()


def marked(size: int) -> bytes:
    """Keys that can be found again; nonces are public."""
    return DATA_KEY if size == 32 else bytes(size)


class Failing:
    """A key service that fails after it was told a key."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def wrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        del plaintext
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply  # type: ignore[no-any-return]

    unwrap = wrap


def failures(store: Store) -> Iterator[Callable[[], Any]]:
    """Everything that can go wrong with keys and payloads at hand."""
    ring, other = Keyring({"a": KEK}), Keyring({"a": OTHER_KEK})
    keys = store.keys(ring, random=marked)
    sealer = store.run(keys.ensure(TENANT, OWNER))
    stored = sealer.seal(ROW, PAYLOAD)
    for broken in (b"", b"unsealed", stored[:-1], stored[:-1] + b"\0", stored[:2] + b"\7" + stored[3:]):
        yield lambda broken=broken: sealer.open(ROW, broken)  # type: ignore[misc]
    yield lambda: sealer.open(identity.thread_subjects(), stored)
    yield lambda: sealer.open(ROW, stored[:10] + bytes(14) + stored[24:])
    yield lambda: store.run(store.keys(other).index())
    yield lambda: store.run(store.keys(Keyring({"b": OTHER_KEK})).index())
    yield lambda: store.run(rotate(store.dialect, other.rotated().wrapper()))
    for reply in (TimeoutError("no answer"), DATA_KEY[:5], None, b"x" + DATA_KEY):
        yield lambda reply=reply: store.run(  # type: ignore[misc]
            Keyring(primary="far", service=Failing(reply)).wrapper().wrap([Draft(OWNER, 1, Secret(DATA_KEY))])
        )
        yield lambda reply=reply: store.run(  # type: ignore[misc]
            Keyring(primary="far", service=Failing(reply)).wrapper().unwrap([DataKey(OWNER, 1, b"", "far", b"w")])
        )
    yield lambda: store.run(keys.shred([bytes(16)]))
    store.run(keys.shred([OWNER]))
    yield lambda: store.run(keys.sealer(TENANT, OWNER)).open(ROW, stored)
    yield lambda: store.run(keys.ensure(TENANT, OWNER))


def test_failures_show_none(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    raised = 0
    for fail in failures(store):
        try:
            fail()
        except StepvaultError as exc:
            raised += 1
            _clean(str(exc), repr(exc), repr(exc.args), _our_frames(exc))
            for chained in (exc.__cause__, exc.__context__):
                _clean(str(chained), repr(chained))
    assert raised >= 15
    _clean(caplog.text)


def test_texts_of_key_files_and_variables_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = base64.b64encode(KEK).decode()
    for text in (
        encoded,
        f"{encoded}:a",
        f"a:{encoded}x!",
        f"a:{encoded[:30]}",
        f"a:{encoded},a:{encoded}",
        f"a:{KEK}",
    ):
        monkeypatch.setenv("STEPVAULT_KEYS", text)
        with pytest.raises(StepvaultError) as caught:
            Keyring.from_env()
        _clean("".join(traceback.format_exception(caught.value)))


def test_objects_show_none_and_do_not_travel(store: Store) -> None:
    ring = Keyring({"a": KEK})
    keys = store.keys(ring, random=marked)
    sealer = store.run(keys.ensure(TENANT, OWNER))
    secret = Secret(DATA_KEY)
    draft = Draft(OWNER, 1, secret)
    index = store.run(keys.index())
    objects = [ring, ring.wrapper(), keys, keys.cache, sealer, sealer.keys, *sealer.keys.keys.values()]
    objects += [secret, draft, index, BlindIndex(secret), Aead(secret, b"label"), Mac(secret), *store.rows()]
    for one in objects:
        _clean(repr(one), str(one), repr([one]))
    for one in objects:
        if not isinstance(one, DataKey):
            with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
                pickle.dumps(one)


def _our_frames(exc: BaseException) -> str:
    """The traceback with the locals of our own frames; those of the test know the secrets."""
    found = traceback.TracebackException.from_exception(exc, capture_locals=True)
    ours = [frame for frame in found.stack if "/tests/" not in frame.filename]
    assert ours
    return "".join(traceback.StackSummary.from_list(ours).format())


def _clean(*texts: str) -> None:
    for text in texts:
        for secret in SECRETS:
            for form in (secret.decode(), secret.hex(), base64.b64encode(secret).decode()):
                assert form[:14] not in text
        assert "MARKER" not in text
