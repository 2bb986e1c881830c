"""The output of commands: files that appear when they are complete, and log lines of progress."""

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from seglake.errors import StoreError

_PROGRESS = (  # the loggers that get it
    "seglake.engine",
    "seglake.log.tasks",
    "seglake.replay",
    "seglake.session",
    "seglake.write.driver.report.long_steps",
    "seglake.write.live.archive",
)


@contextmanager
def log_lines() -> Iterator[None]:
    """In the block, Seglake's log lines of progress go to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with handled(handler):
        yield


@contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    """In the block, a handler gets Seglake's log records of progress."""
    loggers = [logging.getLogger(name) for name in _PROGRESS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """Yield a temporary path, whose file or folder is renamed to `path` when the block ends.

    An exception removes it, and leaves alone what `path` names. Raises StoreError for an OSError.
    """
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def complete_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that is written like `complete`. A device or a pipe is written directly."""
    path = path.resolve()  # a link stays a link
    if path.exists() and not (path.is_file() or path.is_dir()):
        with _device_errors(path), path.open("wb") as file:
            yield file
        return
    with complete(path) as temporary, temporary.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _device_errors(path: Path) -> Iterator[None]:
    """Raise StoreError for a device that cannot be written, but not for a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
