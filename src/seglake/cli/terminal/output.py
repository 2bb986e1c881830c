"""Write files that appear only when they are complete, and print log lines about progress."""

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

_PROGRESS = (  # the loggers with lines about progress
    "seglake.engine",
    "seglake.replay",
    "seglake.session",
    "seglake.write.driver.report.long_steps",
)


@contextmanager
def log_lines() -> Iterator[None]:
    """Print Seglake's log lines about progress to standard error inside the block."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with handled(handler):
        yield


@contextmanager
def handled(handler: logging.Handler) -> Iterator[None]:
    """Pass Seglake's log records about progress to a handler inside the block."""
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

    After an exception, the temporary file is removed, and `path` is unchanged. An OSError is raised
    as StoreError.
    """
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def complete_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that appears when it is complete. Write to a device or a pipe directly.

    A failed write raises StoreError, or BrokenPipeError for a pipe without a reader.
    """
    path = path.resolve()  # a symbolic link is kept, and its target is replaced
    if path.exists() and not (path.is_file() or path.is_dir()):
        try:
            with path.open("wb") as file:
                yield file
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
        return
    with complete(path) as temporary, temporary.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
