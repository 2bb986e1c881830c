"""Store the error, the report and a sample of the rejects of a failed run.

No later attempt reads them. They are for people, for Airflow's retry policy, and for an erasure,
which removes rows from the samples. One object of the failed attempt has all of them. A second,
small object has the id of the last failed attempt. Its key follows from topic, run id and pipeline,
so the time to find a failure does not grow with the lake. `seglake vacuum` deletes both objects.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seglake.errors import CorruptData, MissingObject
from seglake.layout import ATTEMPTS, failed_folder, failed_key, report_key
from seglake.store import Store


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    format: Literal[1] = 1


class FailedRun(_Stored):
    """A failed attempt at a run.

    `error` is the message of the error, and `exit_code` the exit code of its class. `rejects` is a
    sample of the rejected rows, each with source_file, line (from 1), reason and raw (text, or
    {"base64": …}). `report` is the report of the attempt, with the count of all rejects.
    """

    topic: str
    pipeline: str
    run_id: str
    attempt_id: str
    error: str
    exit_code: int
    failed_at_ms: int
    report: dict[str, Any] = Field(default_factory=dict)
    rejects: list[dict[str, Any]] = Field(default_factory=list)


class _Name(_Stored):
    attempt_id: UUID


_AnyStored = TypeVar("_AnyStored", FailedRun, _Name)


def write_failed_run(store: Store, failed: FailedRun) -> None:
    """Store a failed attempt, and make it the last failure of its run. Raises StoreError."""
    rewrite_failed_run(store, failed)
    key = failed_key(failed.topic, failed.pipeline, failed.run_id)
    store.put(key, _Name(attempt_id=UUID(failed.attempt_id)).model_dump_json().encode())


def rewrite_failed_run(store: Store, failed: FailedRun) -> None:
    """Overwrite the stored object of any failed attempt of a run. Raises StoreError."""
    store.put(report_key(failed.attempt_id), failed.model_dump_json().encode())


def all_failed_runs(store: Store, topic: str | None) -> Iterator[FailedRun]:
    """Yield the failed attempts at a topic, or at all topics for None, newest first.

    Raises what `failed_runs` raises.
    """
    reports = [item for item in store.list(ATTEMPTS) if item.key.endswith("/report.json")]
    for item in sorted(reports, key=lambda item: item.modified_ms, reverse=True):
        with suppress(MissingObject):
            failed = _read(store, item.key, FailedRun)
            if topic in {None, failed.topic}:
                yield failed


def failed_runs(store: Store, topic: str, run_id: str) -> list[FailedRun]:
    """Return the last failure of each pipeline at a topic and run id, sorted by pipeline.

    Failures that `seglake vacuum` has deleted are not returned. Raises CorruptData if an object is
    damaged, and StoreError.
    """
    failures = list[FailedRun]()
    for item in store.list(failed_folder(topic, run_id)):
        with suppress(MissingObject):
            attempt_id = str(_read(store, item.key, _Name).attempt_id)
            failures.append(_read(store, report_key(attempt_id), FailedRun))
    return sorted(failures, key=lambda failed: failed.pipeline)


def _read(store: Store, key: str, what: type[_AnyStored]) -> _AnyStored:
    try:
        return what.model_validate_json(bytes(store.read_all(key)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"this is not the report of a failed run: {where}: {first['msg']}"
        raise CorruptData(problem, file=key) from None
