"""A folder of receipts: whether all are genuine, in one chain, and none is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepvault.erasure import PublicKey, digest_of, read_keys, read_receipt, verify_receipt
from stepvault.errors import ConfigurationError, VerifyFailedError


@dataclass(slots=True)
class ReceiptsReport:
    """What a set of receipts shows.

    Attributes:
        genuine: How many are signed by one of the keys.
        forged: Names of those that are not, or were changed, or are no receipts.
        missing: Numbers that are absent, per chain. A chain's newest receipts can be cut off unseen: compare `last`
            with the one the database shows.
        twice: Names of receipts whose number another receipt has too.
        unchained: Names of receipts that do not follow the one before them.
        last: The highest number of each chain. Each tenant of a database has a chain of its own.
    """

    genuine: int = 0
    forged: list[str] = field(default_factory=list)
    missing: dict[str, list[int]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    unchained: list[str] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.forged or self.missing or self.twice or self.unchained)


def verify_receipts(receipts: Mapping[str, Any], public_keys: PublicKey | Iterable[PublicKey]) -> ReceiptsReport:
    """Check receipts offline: signatures, gaps and order.

    Args:
        receipts: The receipts (or their JSON texts) by a name to report them under, such as their file's.
        public_keys: The public keys that signed them; after a rotation, all of them.

    Raises:
        ConfigurationError: There is no key, or what was given is none.
    """
    if not isinstance(receipts, Mapping):
        raise ConfigurationError(f"receipts is a mapping of names to receipts, not {type(receipts).__name__}.")
    if not isinstance(public_keys, (str, bytes)) and isinstance(public_keys, Iterable):
        public_keys = list(public_keys)
    read_keys(public_keys)  # a slip in one would have every receipt look forged
    report = ReceiptsReport()
    chains: dict[str, dict[int, tuple[str, dict[str, Any]]]] = {}
    for name, receipt in receipts.items():
        try:
            content = verify_receipt(receipt, public_keys)
            signed = read_receipt(receipt)
            chain = chains.setdefault(str(content["chain"]), {})
            number = int(content["number"])
        except (VerifyFailedError, KeyError, ValueError):
            report.forged.append(name)
            continue
        report.genuine += 1
        if number in chain:
            report.twice.append(name)
        else:
            chain[number] = name, signed
    for name, chain in chains.items():
        _look_through(report, name, chain)
    return report


def _look_through(report: ReceiptsReport, name: str, chain: Mapping[int, tuple[str, dict[str, Any]]]) -> None:
    report.last[name] = last = max(chain)
    absent = [number for number in range(1, last) if number not in chain]
    if absent:
        report.missing[name] = absent
    for number, (file, receipt) in sorted(chain.items()):
        before = chain.get(number - 1)
        expected = digest_of(before[1]) if before else None
        if (before or number == 1) and receipt["previous"] != expected:
            report.unchained.append(file)
