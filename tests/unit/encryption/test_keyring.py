"""Keyrings: where keys come from, what is refused, and that none shows."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

KEY, OTHER = b"MARKER-of-key-number-1-" + b"1" * 9, b"MARKER-of-key-number-2-" + b"2" * 9
KEY_TEXT, OTHER_TEXT = base64.b64encode(KEY).decode(), base64.b64encode(OTHER).decode()


def test_generated_keys_differ_and_name_themselves() -> None:
    one, two = Keyring.generate(), Keyring.generate()
    assert one.to_text() != two.to_text()
    assert one.ids == (one.primary,)
    assert one.primary != two.primary
    assert Keyring.generate("2026-05").primary == "2026-05"


@pytest.mark.parametrize("key", [KEY, KEY_TEXT, KEY_TEXT.rstrip("="), base64.urlsafe_b64encode(KEY).decode()])
def test_keys_are_given_as_bytes_or_base64(key: str | bytes) -> None:
    assert Keyring({"a": key}).to_text() == f"a:{KEY_TEXT}\n"


def test_the_first_key_is_primary_unless_another_is_named() -> None:
    keys = {"a": KEY, "b": OTHER}
    assert Keyring(keys).primary == "a"
    assert Keyring(keys, primary="b").ids == ("b", "a")


@pytest.mark.parametrize(
    ("text", "primary", "ids"),
    [
        (f"a:{KEY_TEXT}", "a", ("a",)),
        (f"a:{KEY_TEXT},b:{OTHER_TEXT}", "a", ("a", "b")),
        (f" a:{KEY_TEXT} , *b:{OTHER_TEXT} ,\n", "b", ("b", "a")),
        (f"# made in May\nb:{OTHER_TEXT}\n\na:{KEY_TEXT}\n", "b", ("b", "a")),
    ],
)
def test_keys_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, primary: str, ids: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STEPVAULT_KEYS", text)
    keyring = Keyring.from_env()
    assert (keyring.primary, keyring.ids) == (primary, ids)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no keys"),
        (" ,\n, ", "no key"),
        (KEY_TEXT, "entry 1 is not of the form"),
        (f"{KEY_TEXT}:a", "id of key entry 1"),
        (f"a:{KEY_TEXT},a:{OTHER_TEXT}", "'a' stands twice"),
        (f"a:{KEY_TEXT},b:{KEY_TEXT}", "same key"),
        (f"*a:{KEY_TEXT},*b:{OTHER_TEXT}", "mark one"),
        (f"a:{base64.b64encode(KEY[:31]).decode()}", "31 bytes instead of 32"),
        (f"a:{base64.b64encode(KEY * 2).decode()}", "64 bytes instead of 32"),
        (f"a:{KEY.hex()}", "48 bytes instead of 32"),
        (f"a:{KEY_TEXT[:-2]}!=", "'a' is neither base64"),
        (f"a:{KEY_TEXT[:-2]}é", "'a' is neither base64"),
        ("a:", "0 bytes instead of 32"),
        (f":{KEY_TEXT}", "id of key entry 1"),
        (f"a b:{KEY_TEXT}", "id of key entry 1"),
    ],
)
def test_wrong_texts_are_refused_without_showing_them(monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    monkeypatch.setenv("STEPVAULT_KEYS", text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        Keyring.from_env()
    assert KEY_TEXT[:12] not in str(caught.value)
    assert caught.value.__context__ is None


def test_wrong_arguments_are_refused() -> None:
    for keys, primary, says in [
        ({}, None, "needs a key"),
        (None, None, "needs a key"),
        ({"a": KEY}, "b", "'b' is not among"),
        ({"a": KEY, "b": KEY}, None, "same key"),
        ({"a": 5}, None, "neither base64"),
        ({"a" * 33: KEY}, None, "1 to 32"),
        ({7: KEY}, None, "1 to 32"),
    ]:
        with pytest.raises(ConfigurationError, match=says):
            Keyring(keys, primary=primary)  # type: ignore[arg-type]


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="STEPVAULT_NO_SUCH_KEYS"):
        Keyring.from_env("STEPVAULT_NO_SUCH_KEYS")


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    keyring = Keyring({"a": KEY, "b": OTHER}, primary="b")
    path = tmp_path / "keys"
    previous = os.umask(0)
    try:
        keyring.to_file(path)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Keyring.from_file(path).to_text() == keyring.to_text()
    assert os.listdir(tmp_path) == ["keys"]
    for mode in (0o640, 0o604, 0o620, 0o610):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match="chmod 600"):
            Keyring.from_file(path)
    path.chmod(0o400)
    assert Keyring.from_file(path).primary == "b"


def test_a_file_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    Keyring({"a": KEY}).to_file(path)
    with pytest.raises(ConfigurationError, match="exists"):
        Keyring({"b": OTHER}).to_file(path)
    assert Keyring.from_file(path).primary == "a"
    Keyring({"b": OTHER}).to_file(path, overwrite=True)
    assert Keyring.from_file(path).primary == "b"
    assert os.listdir(tmp_path) == ["keys"]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="none cannot be read"):
        Keyring.from_file(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Keyring({"a": KEY}).to_file(tmp_path / "no" / "folder")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe" + KEY)
    binary.chmod(0o600)
    with pytest.raises(ConfigurationError, match="is not text") as caught:
        Keyring.from_file(binary)
    assert caught.value.__context__ is None


def test_rotation_helpers_leave_the_old_ring_alone() -> None:
    old = Keyring({"a": KEY})
    new = old.rotated("b")
    assert (old.ids, new.ids, new.primary) == (("a",), ("b", "a"), "b")
    assert new.without("a").ids == ("b",)
    assert new.with_primary("a").primary == "a"
    with pytest.raises(ConfigurationError, match="primary key"):
        new.without("b")
    with pytest.raises(ConfigurationError, match="taken"):
        new.rotated("a")
    with pytest.raises(ConfigurationError, match="'c' is not among"):
        new.with_primary("c")


def test_a_keyring_shows_ids_only_and_does_not_travel() -> None:
    keyring = Keyring({"a": KEY, "b": OTHER})
    for text in (repr(keyring), str(keyring), f"{keyring}", repr({"keyring": keyring})):
        assert "'a'" in text
        assert "MARKER" not in text
        assert KEY_TEXT not in text
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(keyring, protocol)
    with pytest.raises(TypeError):
        pickle.dumps(keyring.wrapper())
    assert copy.copy(keyring) is keyring
    assert copy.deepcopy([keyring])[0] is keyring
    assert not hasattr(keyring, "__dict__")


def test_without_cryptography_the_extra_is_named() -> None:
    script = """
import sys
sys.modules["cryptography"] = None
from stepvault.encryption import Keyring
from stepvault.errors import MissingDependencyError
try:
    Keyring.generate()
except MissingDependencyError as exc:
    assert 'pip install "stepvault[crypto]"' in str(exc), exc
else:
    raise SystemExit("made a keyring")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
