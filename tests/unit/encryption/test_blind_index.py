from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvault._core.blind_index import TOKEN_BYTES, BlindIndex
from stepvault._core.crypto import Secret
from stepvault._core.keys import DataKey, id_of, wrap_context
from stepvault._core.metadata import token
from stepvault._core.seal_marker import marker, plain_passes
from stepvault.encryption import Keyring
from tests.unit.encryption.making import drain

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "envelope_keys.json").read_text())
INDEX = BlindIndex(Secret(b"r" * 32))
T = b"t"
UNHURRIED = settings(deadline=None)


def test_tokens_are_frozen() -> None:
    golden = GOLDEN["tokens"]
    index = BlindIndex(Secret(bytes.fromhex(golden["root"])))
    assert index.deployment.hex() == golden["deployment"]
    for kind in ("thread", "subject", "owner", "metadata", "item"):
        made = getattr(index, kind)(T, bytes.fromhex(golden[kind]["value"]))
        assert made.hex() == golden[kind]["token"]
    label = golden["label"]
    above = tuple(bytes.fromhex(part) for part in label["above"])
    made = index.label(T, bytes.fromhex(label["table"]), above, bytes.fromhex(label["value"]))
    assert made.hex() == label["token"]


def test_wrapped_keys_are_frozen() -> None:
    golden = GOLDEN["data_key"]
    raw = {name: bytes.fromhex(value) for name, value in golden.items() if name not in ("kek_id", "gen")}
    row = DataKey(raw["owner"], golden["gen"], raw["id"], golden["kek_id"], raw["wrapped"])
    wrapper = Keyring({golden["kek_id"]: raw["kek"]}).wrapper(lambda size: raw["nonce"])
    secret = drain(wrapper.unwrap([row]))[row.id]
    assert secret.value == raw["secret"]
    assert id_of(secret) == raw["id"]
    assert len(raw["wrapped"]) == 60
    assert b"stepvault/wrap/1" in wrap_context(row.kek, row.owner, row.gen, row.id)


def test_tokens_depend_on_root_tenant_and_purpose() -> None:
    made = [
        made
        for index in (INDEX, BlindIndex(Secret(b"s" * 32)))
        for tenant in (b"", b"t")
        for make in (index.thread, index.subject, index.owner, index.metadata)
        for made in (make(tenant, b"value"), make(tenant, b"valu"))
    ]
    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {TOKEN_BYTES}
    assert len(INDEX.item(T, bytes(8))) == 8


def test_tenant_and_value_cannot_be_shifted_into_each_other() -> None:
    assert INDEX.thread(b"ab", b"c") != INDEX.thread(b"a", b"bc")
    assert INDEX.label(T, b"store", (b"a", b"b"), b"c") != INDEX.label(T, b"store", (b"a",), b"bc")
    assert INDEX.label(T, b"store", (b"a",), b"c") != INDEX.label(T, b"store", (b"b",), b"c")


@pytest.mark.parametrize(("one", "two"), [(1, 1.0), (1, True), (0, False), (10**30, 1e30), (-0.0, 0)])
def test_values_that_are_equal_in_python_have_one_token(one: Any, two: Any) -> None:
    assert (one == two) == (_token(one) == _token(two))


@pytest.mark.parametrize(("one", "two"), [(1, "1"), (True, "True"), ("", 0), ("a", "A"), ("a\0", "a")])
def test_values_of_other_types_do_not(one: Any, two: Any) -> None:
    assert _token(one) != _token(two)


SCALARS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5))


@UNHURRIED
@given(SCALARS, SCALARS)
def test_tokens_are_equal_when_values_are(one: Any, two: Any) -> None:
    if one == two:
        assert _token(one) == _token(two)
    elif isinstance(one, str) == isinstance(two, str):
        assert _token(one) != _token(two)


def test_a_marker_is_ours_and_ends() -> None:
    stored = marker(INDEX, 5000)
    assert plain_passes(INDEX, stored, 4999)
    assert not plain_passes(INDEX, stored, 5000)
    assert not plain_passes(BlindIndex(Secret(b"s" * 32)), stored, 0)
    assert not plain_passes(INDEX, None, 0)
    assert not plain_passes(INDEX, marker(INDEX, 9000)[:8] + stored[8:], 0)
    for bit in range(8 * len(stored)):
        changed = bytearray(stored)
        changed[bit // 8] ^= 1 << bit % 8
        assert not plain_passes(INDEX, bytes(changed), 0)
    for size in range(len(stored)):
        assert not plain_passes(INDEX, stored[:size], 0)


def _token(value: Any) -> bytes:
    return INDEX.metadata(T, token("key", value))
