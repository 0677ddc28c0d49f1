"""Options that say whose data something is: a slip in one must not leave data of a person unerased in silence."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault import Vault
from stepvault.errors import ConfigurationError

SLIPS = [
    "users/{subject}",
    ("users", "{subject}"),
    ["users/{subject}"],
    [("users",)],
    [()],
    [("users", 5, "{subject}")],
    [("users.{subject}",)],
    [("users", "", "{subject}")],
    [("{subject}-{subject}",)],
]


@pytest.mark.parametrize("slip", SLIPS)
def test_patterns_that_fit_nothing_are_refused(slip: Any) -> None:
    with Vault.open("memory://", subject_patterns=slip) as vault:
        with pytest.raises(ConfigurationError, match="subject_patterns"):
            vault.erasure.plan("ann")
        with pytest.raises(ConfigurationError, match="subject_patterns"):
            vault.store.put(("users", "ann"), "k", {"n": 1})


@pytest.mark.parametrize("slip", ["email", [""], ["customer..name"], [5]])
def test_personal_fields_that_are_no_names_are_refused(slip: Any) -> None:
    with (
        Vault.open("memory://", personal_fields=slip) as vault,
        pytest.raises(ConfigurationError, match="personal_fields"),
    ):
        vault.erasure.anonymise("ann")


@pytest.mark.parametrize("wrong", [{"issuer": "\ud800"}, {"hooks": {"\ud800": print}}, {"hooks": {5: print}}])
def test_what_no_receipt_can_say_is_refused_before_anything_is_erased(wrong: dict[str, Any]) -> None:
    with Vault.open("memory://", **wrong) as vault, pytest.raises(ConfigurationError):
        vault.erasure.erase("ann")


def test_one_person_is_no_list_of_people() -> None:
    with Vault.open("memory://") as vault, pytest.raises(ConfigurationError, match="list of people"):
        vault.erasure.erase_many("ann")
