"""One browser for all tests here."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.harness.browser import browser
from tests.harness.debian import NoPackageError


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser, whose event loop runs as long: no test may meet it that starts another.

    Skips only where there is none and none can be fetched.
    """
    try:
        with browser() as running:
            yield running
    except NoPackageError as reason:
        pytest.skip(f"no browser: {reason}")
