"""A headless Chromium for looking at pages: that of the machine, or Debian's, fetched once."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.harness.debian import unpacked

CACHE = Path(__file__).resolve().parents[2] / ".browser"
PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
NAMES = ("chromium", "chromium-headless-shell", "google-chrome")


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser. Raises NoPackageError."""
    program, environment = chromium_program()
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, env={**environment}, args=["--no-sandbox"]
        )
        try:
            yield running
        finally:
            running.close()


def chromium_program() -> tuple[str, dict[str, str]]:
    """Its path, and the environment in which it runs. Raises NoPackageError."""
    for found in filter(None, map(shutil.which, NAMES)):
        return found, dict(os.environ)
    environment = unpacked(CACHE, PACKAGES)
    (program,) = CACHE.glob("usr/lib/chromium/chromium-headless-shell")
    return str(program), environment
