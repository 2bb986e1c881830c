"""What is known of a run that failed: its error, its report, and a sample of its rejects.

No later attempt reads it. People do, Airflow's retry policy does, and so does an erasure: it takes
rows out of samples. The report stands under the attempt. A small object, whose key follows from
topic, run id and pipeline, names the last attempt that failed, so finding it costs the same however
old the lake is. `seglake vacuum` removes both.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seglake.errors import CorruptData, MissingObject, UsageError
from seglake.layout import ATTEMPTS, failed_folder, failed_key, report_key
from seglake.store import Store


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    format: Literal[1] = 1


class FailedRun(_Stored):
    """The last attempt at a run that failed.

    `exit_code` is that of the error's class; `error` is its message. `rejects` are a few rejected
    rows, each with source_file, line (from 1), reason and raw (text, or {"base64": …}); the count
    of all is in the `report`, which is that of the attempt.
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
    attempt_id: str


_AnyStored = TypeVar("_AnyStored", FailedRun, _Name)


def write_failed_run(store: Store, failed: FailedRun) -> None:
    """Write what is known of a run that failed. Raises StoreError."""
    rewrite_failed_run(store, failed)
    key = failed_key(failed.topic, failed.pipeline, failed.run_id)
    store.put(key, _Name(attempt_id=failed.attempt_id).model_dump_json().encode())


def rewrite_failed_run(store: Store, failed: FailedRun) -> None:
    """Write again what is known of a failed attempt, which need not be the last one."""
    store.put(report_key(failed.attempt_id), failed.model_dump_json().encode())


def all_failed_runs(store: Store, topic: str | None) -> Iterator[FailedRun]:
    """What is known of each failed attempt, at one topic or at any; what was written last is first.

    Raises as `failed_runs`.
    """
    reports = [item for item in store.list(ATTEMPTS) if item.key.endswith("/report.json")]
    for item in sorted(reports, key=lambda item: item.modified_ms, reverse=True):
        with suppress(MissingObject):
            failed = _read(store, item.key, FailedRun)
            if topic in {None, failed.topic}:
                yield failed


def failed_runs(store: Store, topic: str, run_id: str) -> list[FailedRun]:
    """The last failure of each pipeline at a run id of a topic, in the order of pipelines.

    A failure that `seglake vacuum` removed is left out. Raises CorruptData if an object is damaged,
    and StoreError.
    """
    keys = [item.key for item in store.list(failed_folder(topic, run_id))]
    failures = (_failed_run(store, key) for key in keys)
    return sorted(filter(None, failures), key=lambda failed: failed.pipeline)


def _failed_run(store: Store, key: str) -> FailedRun | None:
    try:
        name = _read(store, key, _Name)
        return _read(store, report_key(name.attempt_id), FailedRun)
    except MissingObject:
        return None
    except UsageError as error:
        raise CorruptData(str(error), file=key) from None


def _read(store: Store, key: str, what: type[_AnyStored]) -> _AnyStored:
    try:
        return what.model_validate_json(bytes(store.read_all(key)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"this is not the report of a failed run: {where}: {first['msg']}"
        raise CorruptData(problem, file=key) from None
