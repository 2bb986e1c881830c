"""Define every error that Seglake raises on purpose, with its exit code.

    SeglakeError                  exit code 1
    ├── ConfigError               2   the settings are wrong; the message names the key
    │   └── MissingExtra              a package is not installed; the message names the extra
    ├── InputError                2   an input file or folder is unusable; the message names it
    │   └── ChangedFiles          6   a file changed after it was ingested; see `on_changed_source`
    ├── QuarantineLimit           3   more rows were rejected than the pipeline allows, or all
    ├── OutsideInterval           5   no record of a run is in the interval that it declares
    ├── UsageError                2   the request cannot be carried out as it is
    │   ├── UnknownTopic              no such topic or partition in this version of the lake
    │   ├── OffsetOutOfRange          below the log start, or above the log end
    │   ├── OffsetNotFound            inside the log, but no record has this offset
    │   ├── PolicyViolation           the topic's cleanup.policy forbids it
    │   └── VersionExpired            the version is not retained, or the catalog was created again
    ├── StoreError                1   storage failed; the message names the object; try again
    │   └── MissingObject             the object does not exist
    ├── CorruptData               1   bytes are wrong: the message names file, position and problem
    ├── CommitConflict            1   another commit came first; reload and try again
    └── AttemptAbandoned          1   abandoned by vacuum or erase before it committed; run again

Jobs and the command line end with the exit code of the error's class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import Logger


class SeglakeError(Exception):
    """Root of every error that Seglake raises on purpose."""

    exit_code = 1


class ConfigError(SeglakeError):
    """A setting is unknown, contradictory or out of range; the message names it and the remedy."""

    exit_code = 2


class MissingExtra(ConfigError, ImportError):
    """A package is not installed; the message names the extra of Seglake that installs it."""


class InputError(SeglakeError):
    """An input path cannot be used; the message names it and the remedy."""

    exit_code = 2


class ChangedFiles(InputError):
    """Files changed after they were ingested, by this run or by another one."""

    exit_code = 6

    def __init__(self, paths: Sequence[str], run: str = "the id of its run") -> None:
        self.paths, more = paths, f" (and {len(paths) - 1:,} more)" if paths[1:] else ""
        super().__init__(
            f"{paths[0]}{more} changed after it was ingested. To replace its old content, use "
            f"`--replace` with {run}. To keep it, use `--on-changed-source skip`. `ingest-as-new` "
            "ingests all of its lines, so unchanged lines are in the topic twice"
        )


class QuarantineLimit(SeglakeError):
    """More rows were rejected than `max_quarantine_ratio` allows, or all. Nothing was committed."""

    exit_code = 3


class OutsideInterval(SeglakeError):
    """No record of a run is in the run's declared interval, and the pipeline forbids this."""

    exit_code = 5


class UsageError(SeglakeError):
    """The request cannot be carried out. The message says what to change."""

    exit_code = 2


class UnknownTopic(UsageError):
    """The topic or partition does not exist in this version of the lake."""


class OffsetOutOfRange(UsageError):
    """The offset is below the log start or above the log end (Kafka's OFFSET_OUT_OF_RANGE)."""


class OffsetNotFound(UsageError):
    """The offset is in a gap of the log, so no record has it."""


class PolicyViolation(UsageError):
    """The topic's `cleanup.policy` forbids the request (Kafka's POLICY_VIOLATION)."""


class VersionExpired(UsageError):
    """The catalog version is no longer retained, or the catalog was created again."""


class StoreError(SeglakeError):
    """Storage failed to read or write an object; the message names the object."""


class MissingObject(StoreError):
    """An object does not exist; the message names the object."""


class CorruptData(SeglakeError):
    """A file, or bytes that were received, are damaged or have the wrong format.

    `what` describes the problem. `file` is the key or path of the object, or "" if the caller has
    only bytes. `position` is the byte of the file at which the damage was found.
    """

    def __init__(self, what: str, *, file: str = "", position: int = 0) -> None:
        self.what, self.file, self.position = what, file, position
        super().__init__(f"{file or 'bytes'} at byte {position}: {what}")

    def __reduce__(self) -> tuple[object, ...]:
        return _corrupt, (self.what, self.file, self.position)

    def within(self, file: str, start: int = 0) -> CorruptData:
        """Return this error with `file`, in which the checked bytes begin at position `start`."""
        return CorruptData(self.what, file=file, position=start + self.position)


def require_format(found: int, expected: int, what: str, file: str) -> None:
    """Raise CorruptData unless the format of an object is the only supported format."""
    if found != expected:
        problem = f"{what} has format {found}, but this version of Seglake reads format {expected}"
        raise CorruptData(problem, file=file)


_Kinds = type[Exception] | tuple[type[Exception], ...]
_WRONG_CONTENT: tuple[type[Exception], ...] = (
    ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError,
)  # fmt: skip


@contextmanager
def corrupt_unless_parsed(what: str, file: str, *more: type[Exception]) -> Iterator[None]:
    """Convert Python's exceptions for wrong content, and the exceptions `more`, to CorruptData.

    The message names `what`, the expected content, such as "a manifest".
    """
    try:
        yield
    except _WRONG_CONTENT + more as error:
        raise CorruptData(f"this is not {what}: {error!r}", file=file) from error


@contextmanager
def warn_on(error: _Kinds, problem: str, log: Logger) -> Iterator[None]:
    """Log a warning instead of raising an error of the class `error` in the block.

    The warning has `problem`, a colon and the message of the error.
    """
    try:
        yield
    except error as caught:
        log.warning("%s: %s", problem, caught)


def _corrupt(what: str, file: str, position: int) -> CorruptData:
    return CorruptData(what, file=file, position=position)


class CommitConflict(SeglakeError):
    """Another commit to the same topic came first."""


class AttemptAbandoned(SeglakeError):
    """A vacuum or an erasure abandoned an attempt before its commit, so nothing was committed."""
