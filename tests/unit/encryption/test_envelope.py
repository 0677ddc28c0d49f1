"""The envelope: frozen bytes, and nothing but the very row and key opens it."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvault._core import identity
from stepvault._core.crypto import Secret, frame
from stepvault._core.envelope import MAGIC, OVERHEAD, is_sealed, seal
from stepvault._core.keys import DataKey, KeyChain, SealingKey, chain, id_of
from stepvault._core.sealing import Plain, Sealer
from stepvault.errors import (
    KeyNotFoundError,
    KeyShreddedError,
    PayloadError,
    PlaintextRejectedError,
    RowMismatchError,
    TamperedError,
    TruncatedError,
    UnsupportedFormatError,
    WrongKeyError,
)
from tests.unit.encryption.making import DEPLOYMENT, OWNER, TENANT, sealer_of

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "envelope.json").read_text())

UNHURRIED = settings(deadline=None)

ROW = identity.checkpoint_body(b"ns", b"\x01" + bytes(16))
PAYLOAD = bytes(range(256)) + b"the payload of this envelope has so many bytes, not more" + bytes(8)

IDENTITIES = [
    identity.thread_id(),
    identity.thread_subjects(),
    identity.checkpoint_body(b"", b"id"),
    identity.checkpoint_body(b"i", b"d"),
    identity.checkpoint_body(b"id", b""),
    identity.write_body(b"", b"id", b"task", 0),
    identity.write_body(b"", b"id", b"task", -3),
    identity.write_body(b"", b"idt", b"ask", 0),
    identity.chunk(1, 2),
    identity.chunk(2, 1),
    identity.item(b"value", b"ns", b"key"),
    identity.item(b"names", b"ns", b"key"),
    identity.item(b"value", b"nsk", b"ey"),
    identity.vector(b"ns", b"key", b"text"),
    identity.note(b"id"),
    identity.doc(b"", b"id"),
    identity.doc(b"i", b"d"),
]


@pytest.mark.parametrize("vector", GOLDEN["envelopes"], ids=lambda vector: vector["name"])
def test_bytes_are_frozen(vector: dict[str, Any]) -> None:
    raw = {name: bytes.fromhex(value) for name, value in vector.items() if isinstance(value, str) and name != "name"}
    where = identity.scope(raw["deployment"], raw["tenant"], raw["owner"])
    row = tuple(bytes.fromhex(part) for part in vector["identity"])
    key = SealingKey(Secret(raw["key"]))
    assert seal(key, where, row, raw["nonce"], raw["payload"]) == raw["envelope"]
    assert sealer(Secret(raw["key"]), where).open(row, raw["envelope"]) == raw["payload"]


@pytest.mark.parametrize("name", GOLDEN["identities"])
def test_identities_are_frozen(name: str) -> None:
    made = {
        "thread_id": identity.thread_id(),
        "thread_subjects": identity.thread_subjects(),
        "checkpoint_body": identity.checkpoint_body(b"ns", b"id"),
        "write_body": identity.write_body(b"ns", b"id", b"task", -2),
        "chunk": identity.chunk(65, 64),
        "item": identity.item(b"value", b"ns", b"key"),
        "vector": identity.vector(b"ns", b"key", b"path"),
        "note": identity.note(b"key"),
        "doc": identity.doc(b"space", b"key"),
    }
    assert [part.hex() for part in made[name]] == GOLDEN["identities"][name]


def test_the_envelope_is_what_its_description_says() -> None:
    """Written once more from the text alone, without our own primitives."""
    vector = GOLDEN["envelopes"][0]
    key, nonce, payload, deployment, tenant, owner = (
        bytes.fromhex(vector[name]) for name in ("key", "nonce", "payload", "deployment", "tenant", "owner")
    )

    def subkey(label: bytes) -> bytes:
        return hmac.new(key, label + b"\x01", hashlib.sha256).digest()

    def framed(*parts: bytes) -> bytes:
        lengths = b"".join(struct.pack(">I", len(part)) for part in parts)
        return struct.pack(">I", len(parts)) + lengths + b"".join(parts)

    row = framed(deployment, tenant, owner) + framed(*(bytes.fromhex(part) for part in vector["identity"]))
    header = bytes((0xC1, 1, 1, 0)) + struct.pack(">I", len(payload)) + subkey(b"stepvault/id/1")[:16] + nonce
    header += hmac.new(subkey(b"stepvault/row/1"), row, hashlib.sha256).digest()[:8]
    sealed = AESGCM(subkey(b"stepvault/seal/1")).encrypt(nonce, payload, b"stepvault/aad/1" + header + row)
    assert (header + sealed).hex() == vector["envelope"]
    assert len(header) == 44


def test_every_flipped_bit_is_refused() -> None:
    owner = sealer_of()
    stored = owner.seal(ROW, PAYLOAD)
    refused = Counter(_refusal(owner, ROW, _flipped(stored, bit)) for bit in range(8 * len(stored)))
    assert refused == {
        PlaintextRejectedError: 8,
        UnsupportedFormatError: 24,
        TruncatedError: 32,
        KeyNotFoundError: 128,
        RowMismatchError: 64,
        TamperedError: 8 * (12 + len(PAYLOAD) + 16),
    }


def test_every_truncation_and_every_appended_byte_is_refused() -> None:
    owner = sealer_of()
    stored = owner.seal(ROW, PAYLOAD)
    shorter = [_refusal(owner, ROW, stored[:size]) for size in range(len(stored))]
    assert shorter[0] is PlaintextRejectedError
    assert set(shorter[1:]) == {TruncatedError}
    assert {_refusal(owner, ROW, stored + bytes((byte,))) for byte in range(256)} == {TruncatedError}


def test_no_row_opens_in_the_place_of_another() -> None:
    owner = sealer_of()
    sealed = [(row, owner.seal(row, PAYLOAD)) for row in IDENTITIES]
    for row, stored in sealed:
        for other in IDENTITIES:
            if other == row:
                assert owner.open(other, stored) == PAYLOAD
            else:
                assert _refusal(owner, other, stored) is RowMismatchError


def test_no_row_opens_in_another_thread_tenant_or_deployment() -> None:
    stored = sealer_of().seal(ROW, PAYLOAD)
    key = bytes(32)
    assert _refusal(sealer_of(key, tenant=b"other"), ROW, stored) is RowMismatchError
    assert _refusal(sealer_of(key, owner=b"another-owner-16"), ROW, stored) is RowMismatchError
    elsewhere = sealer(Secret(key), identity.scope(b"other-deployment", TENANT, OWNER))
    assert _refusal(elsewhere, ROW, stored) is RowMismatchError
    assert _refusal(sealer_of(b"\x01" * 32), ROW, stored) is KeyNotFoundError


def test_a_row_tag_taken_from_the_place_it_was_moved_to_does_not_help() -> None:
    owner = sealer_of()
    stored, there = owner.seal(IDENTITIES[3], PAYLOAD), owner.seal(IDENTITIES[4], b"")
    forged = stored[:36] + there[36:44] + stored[44:]
    assert _refusal(owner, IDENTITIES[4], forged) is TamperedError


def test_a_header_or_nonce_of_another_envelope_does_not_fit() -> None:
    owner = sealer_of()
    one, two = owner.seal(ROW, PAYLOAD), owner.seal(ROW, PAYLOAD)
    assert one != two
    assert _refusal(owner, ROW, one[:44] + two[44:]) is TamperedError
    assert _refusal(owner, ROW, one[:24] + two[24:36] + one[36:]) is TamperedError


@pytest.mark.parametrize("stored", [b"", b"\x00plain", b"\x01zstd", b"{}", b"\x93\x01\x02\x03", b"\xc0" * 80])
def test_what_is_not_sealed_is_refused(stored: bytes) -> None:
    assert _refusal(sealer_of(), ROW, stored) is PlaintextRejectedError


def test_unsealed_rows_pass_only_while_a_database_is_being_sealed() -> None:
    during = Sealer(sealer_of().keys, identity.scope(DEPLOYMENT, TENANT, OWNER), bytes, accept_plain=True)
    assert during.open(ROW, b"\x00plain") == b"\x00plain"
    assert _refusal(during, ROW, b"") is PlaintextRejectedError
    stored = sealer_of().seal(ROW, PAYLOAD)
    assert during.open(ROW, stored) == PAYLOAD
    assert _refusal(during, IDENTITIES[0], stored) is RowMismatchError


def test_without_keys_nothing_changes_and_envelopes_are_refused() -> None:
    plain = Plain()
    assert plain.seal(ROW, b"\x00abc") == b"\x00abc"
    assert plain.open(ROW, b"\x00abc") == b"\x00abc"
    with pytest.raises(KeyNotFoundError, match="pass keyring="):
        plain.open(ROW, sealer_of().seal(ROW, PAYLOAD))


def test_older_generations_open_and_the_newest_seals() -> None:
    first, second = Secret(b"1" * 32), Secret(b"2" * 32)
    rows = [DataKey(OWNER, gen, id_of(key), "kek", b"w") for gen, key in ((2, second), (1, first))]
    where = identity.scope(DEPLOYMENT, TENANT, OWNER)
    old = sealer(first, where).seal(ROW, b"old")
    both = Sealer(chain(OWNER, rows, {id_of(first): first, id_of(second): second}), where, bytes)
    assert both.open(ROW, old) == b"old"
    assert both.seal(ROW, b"new")[8:24] == id_of(second)


def test_a_shredded_owner_neither_opens_nor_seals() -> None:
    key = Secret(b"1" * 32)
    where = identity.scope(DEPLOYMENT, TENANT, OWNER)
    stored = sealer(key, where).seal(ROW, b"gone")
    shredded = Sealer(chain(OWNER, [DataKey(OWNER, 1, id_of(key), "kek", None)], {}), where, bytes)
    assert _refusal(shredded, ROW, stored) is KeyShreddedError
    with pytest.raises(KeyShreddedError):
        shredded.seal(ROW, b"late")


def test_an_owner_without_keys_says_where_to_look() -> None:
    none = Sealer(KeyChain(OWNER, {}, None, frozenset()), b"", bytes)
    with pytest.raises(KeyNotFoundError, match="keys_url"):
        none.seal(ROW, b"")
    with pytest.raises(KeyNotFoundError, match="keys_url"):
        none.open(ROW, sealer_of().seal(ROW, b""))


def test_a_row_that_unwraps_to_another_key_is_a_wrong_key() -> None:
    row = DataKey(OWNER, 1, id_of(Secret(b"1" * 32)), "kek", b"wrapped")
    with pytest.raises(WrongKeyError, match="'kek'"):
        chain(OWNER, [row], {row.id: Secret(b"2" * 32)})


def test_more_than_an_envelope_holds_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(PayloadError, match="2 GB"):
        sealer_of().seal(ROW, Huge())


def test_buffers_of_database_drivers_open_too() -> None:
    owner = sealer_of()
    stored = owner.seal(ROW, PAYLOAD)
    assert owner.open(ROW, memoryview(stored)) == PAYLOAD  # type: ignore[arg-type]
    assert owner.open(ROW, bytearray(stored)) == PAYLOAD  # type: ignore[arg-type]


def test_threads_share_a_sealer() -> None:
    owner = sealer_of()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for size in range(0, 20_000, 97):
                payload = bytes((number,)) * size
                assert owner.open(ROW, owner.seal(ROW, payload)) == payload
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_nonces_come_from_the_given_source_one_per_payload() -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return len(asked).to_bytes(size, "big")

    owner = Sealer(sealer_of().keys, identity.scope(DEPLOYMENT, TENANT, OWNER), random)
    nonces = {owner.seal(ROW, b"same")[24:36] for _ in range(10)}
    assert len(nonces) == 10
    assert asked == [12] * 10


@UNHURRIED
@given(st.binary(max_size=5000), st.binary(max_size=40), st.binary(max_size=40), st.integers(-(2**63), 2**63 - 1))
def test_what_goes_in_comes_out(payload: bytes, ns: bytes, checkpoint: bytes, k: int) -> None:
    owner = sealer_of()
    row = identity.write_body(ns, checkpoint, b"task", k)
    stored = owner.seal(row, payload)
    assert stored[0] == MAGIC
    assert is_sealed(stored)
    assert len(stored) == len(payload) + OVERHEAD
    assert owner.open(row, stored) == payload


@UNHURRIED
@given(st.lists(st.binary(max_size=6), max_size=8), st.lists(st.binary(max_size=6), max_size=8))
def test_different_parts_never_frame_alike(one: list[bytes], two: list[bytes]) -> None:
    assert (frame(tuple(one)) == frame(tuple(two))) == (one == two)


def sealer(key: Secret, where: bytes) -> Sealer:
    row = DataKey(OWNER, 1, id_of(key), "kek", b"wrapped")
    return Sealer(chain(OWNER, [row], {row.id: key}), where, lambda size: b"\x07" * size)


def _flipped(stored: bytes, bit: int) -> bytes:
    changed = bytearray(stored)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _refusal(owner: Sealer, row: identity.Identity, stored: bytes) -> type[PayloadError]:
    with pytest.raises(PayloadError) as caught:
        owner.open(row, stored)
    return caught.type
