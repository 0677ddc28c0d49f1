"""Errors name what a program would write; here, what to type on the command line is added."""

from __future__ import annotations

import re

# By what messages call them. Plain English counts only where it looks like Python: `limit=`, `limit must`.
OPTIONS = {
    "keyring": "--keyfile FILE (or STEPVAULT_KEYS)",
    "keys_url": "--keys-url (or STEPVAULT_KEYS_URL)",
    "subject_patterns": "--subject-pattern (or STEPVAULT_SUBJECT_PATTERNS)",
    "url": "--url (or STEPVAULT_URL)",
    "types": "--app module[:register]",
    "register_type": "--app module:register",
    "tenant": "--tenant",
    "pseudonymise_ids": "--pseudonymise-ids of `seal` and `unseal`",
    "all_tenants": "--all-tenants",
    "default_ttl": "--apply-ttl",
    "keep_last": "--keep-last",
    "max_age": "--max-age",
    "max_bytes": "--max-bytes",
    "keep_messages": "--keep",
    "keep_types": "--keep-type",
    "messages_key": "--messages-key",
    "summarise": "--summarise",
    "personal_fields": "--personal-field",
    "limit": "--limit",
    "cursor": "--cursor",
    "seconds": "--seconds",
    "settle": "--settle",
    "vacuum": "--vacuum",
    "journal": "--journal",
    "shared": "--shared",
    "own": "--own",
    "public_key": "--public-key",
    "subject": "the id of a person",
}
COMMANDS = {
    "seal": "`stepvault seal`",
    "unseal": "`stepvault unseal`",
    "resume": "`stepvault erase resume`",
    "reconcile": "`stepvault erase reconcile`",
    "release": "`stepvault release`",
    "readmit": "`stepvault readmit`",
    "repair": "`stepvault repair`",
    "hold": "`stepvault hold`",
}
_ENGLISH = {
    "url",
    "types",
    "tenant",
    "summarise",
    "limit",
    "cursor",
    "seconds",
    "settle",
    "vacuum",
    "journal",
    "shared",
}
_ENGLISH |= {"own", "subject"}
_WORD = re.compile(r"\b(?:vault\.)?([a-z_]+)\b(\(|=| (?:must|needs|is a)\b)?")


def explained(exc: Exception) -> str:
    """The message of an error, and what the Python names in it are on the command line."""
    message = str(exc)
    found: dict[str, None] = {}
    for word in _WORD.finditer(message):
        name, after = word.groups()
        if after == "(" and name in COMMANDS:
            found.setdefault(f"{name}() is {COMMANDS[name]}")
        elif name in OPTIONS and (after or name not in _ENGLISH):
            found.setdefault(f"{name}= is {OPTIONS[name]}")
    return f"{message} On the command line, {', '.join(found)}." if found else message
