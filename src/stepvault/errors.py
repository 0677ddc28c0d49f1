"""Every error Stepvault raises. The class docstring is the default message; each says what to do.

    StepvaultError
    |- ConfigurationError (ValueError)      a wrong argument, caught before anything is written
    |    |- IdentifierError                   an id of a kind that cannot be stored
    |    |- IndexMismatchError                a vector index made with other settings
    |    `- EventLoopError                    a sync call that would block its own event loop
    |- MissingDependencyError (ImportError) names the extra to install
    |- StorageError                         the database
    |    |- StorageUnavailableError           worth a retry
    |    |- StorageFullError
    |    |- StorageReadOnlyError
    |    |- StorageCorruptError
    |    |- ThreadGoneError                   the run's thread was deleted, erased or expired
    |    `- ConflictError
    |         |- LeaseHeldError
    |         |- HeadMovedError
    |         `- FencedError
    |- SchemaError
    |    |- MigrationRequiredError
    |    `- SchemaTooNewError
    |- PayloadError                         stored bytes that cannot be read, or a value that cannot be stored
    |    |- ValueNotSerializableError (TypeError)
    |    |- UnknownTypeError
    |    |- StateInvalidError
    |    |- UnsupportedFormatError
    |    |- PlaintextRejectedError
    |    |- TamperedError
    |    |- WrongKeyError
    |    |- KeyNotFoundError
    |    |- KeyShreddedError
    |    |- RowMismatchError
    |    `- TruncatedError
    |- KeyUnavailableError                  worth a retry
    |- DecisionError
    |    |- AlreadyDecidedError
    |    |- SupersededError
    |    |- DeadlinePassedError
    |    |- AnswerInvalidError
    |    `- InterruptNotFoundError
    |- ErasureError
    |    |- SubjectErasedError
    |    |- HoldError
    |    |- PlanStaleError
    |    `- VerifyFailedError
    |- EmbeddingError                       the embedder of a store failed
    |    `- DimensionsError
    |- EffectInDoubtError
    |- EffectNotDurableError
    `- StepsLoadError

Messages carry ids, never payloads or keys. Driver errors are translated in `_drivers`, always `from exc`.
"""

from __future__ import annotations

import asyncio

__all__ = [
    "AlreadyDecidedError",
    "AnswerInvalidError",
    "ConfigurationError",
    "ConflictError",
    "DeadlinePassedError",
    "DecisionError",
    "DimensionsError",
    "EffectInDoubtError",
    "EffectNotDurableError",
    "EmbeddingError",
    "ErasureError",
    "EventLoopError",
    "FencedError",
    "HeadMovedError",
    "HoldError",
    "IdentifierError",
    "IndexMismatchError",
    "InterruptNotFoundError",
    "KeyNotFoundError",
    "KeyShreddedError",
    "KeyUnavailableError",
    "LeaseHeldError",
    "MigrationRequiredError",
    "MissingDependencyError",
    "PayloadError",
    "PlaintextRejectedError",
    "PlanStaleError",
    "RowMismatchError",
    "SchemaError",
    "SchemaTooNewError",
    "StateInvalidError",
    "StepsLoadError",
    "StepvaultError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageReadOnlyError",
    "StorageUnavailableError",
    "SubjectErasedError",
    "SupersededError",
    "TamperedError",
    "ThreadGoneError",
    "TruncatedError",
    "UnknownTypeError",
    "UnsupportedFormatError",
    "ValueNotSerializableError",
    "VerifyFailedError",
    "WrongKeyError",
]


class StepvaultError(Exception):
    """Stepvault could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((self.__doc__ or "").split()))


class ConfigurationError(StepvaultError, ValueError):
    """An argument or a setting is wrong; nothing was written."""


class IdentifierError(ConfigurationError):
    """An id is of a kind that cannot be stored; pass a str (or int) id."""


class EventLoopError(ConfigurationError, asyncio.InvalidStateError):
    """A sync method of an async saver or store was called from its own event loop; await the async one."""


class IndexMismatchError(ConfigurationError):
    """The vectors of this database were made with other index settings; call reindex() once to make them anew."""


class MissingDependencyError(StepvaultError, ImportError):
    """An optional dependency is missing; install the extra that the message names."""


class StorageError(StepvaultError):
    """The database refused or failed the operation; nothing of it was stored."""


class StorageUnavailableError(StorageError):
    """The database did not answer or is busy; retrying is safe."""

    repeat = False  # set by a driver that has replaced a lost connection: the operation repeats itself
    parted = False  # set by a driver of a cluster: keys of one slot lie on two nodes while it moves


class StorageFullError(StorageError):
    """The disk or memory of the database is full; free space and retry, nothing of this write was stored."""


class StorageReadOnlyError(StorageError):
    """The database cannot be written; check its file permissions, mount or replica role."""


class StorageCorruptError(StorageError):
    """The database file is damaged or is not a database; restore it from a backup, it was left as it was."""


class ThreadGoneError(StorageError):
    """The thread this run loaded was deleted, erased or expired meanwhile; start a new run."""


class ConflictError(StorageError):
    """Another writer was first; load the thread again and repeat."""


class LeaseHeldError(ConflictError):
    """Another worker holds the lease of this thread; wait for it or let it finish."""


class HeadMovedError(ConflictError):
    """Another run moved the head of this thread; load it again and repeat."""


class FencedError(ConflictError):
    """This worker's lease was lost; stop the run, its later writes are refused."""


class SchemaError(StepvaultError):
    """The tables of this database do not fit this version of Stepvault."""


class MigrationRequiredError(SchemaError):
    """The tables are missing or older than this code; call setup() once."""


class SchemaTooNewError(SchemaError):
    """The tables were made by a newer Stepvault; upgrade this process before it opens them."""


class PayloadError(StepvaultError):
    """A stored payload cannot be read or a value cannot be stored."""


class ValueNotSerializableError(PayloadError, TypeError):
    """A value cannot be stored without changing it; the message names channel, path and type."""

    def __init__(self, message: str | None = None, *, path: str = "", type_name: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.type_name = type_name


class UnknownTypeError(PayloadError):
    """A stored value is of a type this process has not registered; register it with types=[...]."""

    def __init__(self, message: str | None = None, *, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class StateInvalidError(PayloadError):
    """A stored state does not pass state_schema; migrate it with state_migrations."""


class UnsupportedFormatError(PayloadError):
    """A stored payload has a format this version does not know; upgrade Stepvault."""


class PlaintextRejectedError(PayloadError):
    """An unsealed row was found although a keyring is set; run `stepvault seal` or check who wrote it."""


class TamperedError(PayloadError):
    """A sealed payload was changed after it was written; restore the row from a backup."""


class WrongKeyError(PayloadError):
    """The key-encryption key with this id is not the one that wrapped the data key."""


class KeyNotFoundError(PayloadError):
    """A payload names a key that is not in the key store; add it to the keyring."""


class KeyShreddedError(PayloadError):
    """The data key of this payload was destroyed by an erasure; the payload cannot be read any more."""


class RowMismatchError(PayloadError):
    """A sealed payload stands in a row it was not written for; the row was moved or forged."""


class TruncatedError(PayloadError):
    """A stored payload is cut short; restore the row from a backup."""


class KeyUnavailableError(StepvaultError):
    """The key service did not answer; retrying is safe."""


class DecisionError(StepvaultError):
    """The decision could not be recorded."""


class AlreadyDecidedError(DecisionError):
    """This interrupt was already decided."""

    def __init__(self, message: str | None = None, *, by: str | None = None, at: object = None) -> None:
        super().__init__(message)
        self.by = by
        self.at = at


class SupersededError(DecisionError):
    """This question was superseded by a later state of its thread."""


class DeadlinePassedError(DecisionError):
    """The deadline of this interrupt has passed."""


class AnswerInvalidError(DecisionError):
    """The answer does not fit the response schema of this interrupt."""


class InterruptNotFoundError(DecisionError):
    """No interrupt has this id."""


class ErasureError(StepvaultError):
    """The erasure could not be done as asked."""


class SubjectErasedError(ErasureError):
    """The person this write belongs to was erased; nothing was stored. readmit() lets a returning person in."""


class HoldError(ErasureError):
    """A hold stops this erasure; release() it first."""


class PlanStaleError(ErasureError):
    """The data changed since the plan was made; plan again."""


class VerifyFailedError(ErasureError):
    """Data of the subject is still there; resume() the erasure."""


class EmbeddingError(StepvaultError):
    """The embedder failed; nothing of this batch was stored."""


class DimensionsError(EmbeddingError, ValueError):
    """The embedder's vectors have another length than index["dims"]; nothing of this batch was stored."""


class EffectInDoubtError(StepvaultError):
    """A crash fell between the start and the end of this effect; resolve() it."""

    def __init__(self, message: str | None = None, *, record: object = None) -> None:
        super().__init__(message)
        self.record = record  # the `EffectRecord`: what there is to decide on


class EffectNotDurableError(StepvaultError):
    """The checkpoint of this effect is not durable; run with durability="sync" or "async"."""


class StepsLoadError(StepvaultError):
    """A dump of typed steps is malformed; the message says where."""
