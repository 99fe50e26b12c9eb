"""Pages: their words, and a headless Chromium (`from browser import open_page` gives the fixture)."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
)


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Any]]:
    """A function that opens a file in one browser and returns its selenium driver."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("needs the Debian packages chromium and chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options, Service(driver_path))

    def go_to(path: Path) -> Any:
        driver.get(path.resolve().as_uri())
        return driver

    try:
        yield go_to
    finally:
        driver.quit()


def without_scripts(page: Path) -> str:
    return re.sub(r"<(script|style)\b.*?</\1>", " ", page.read_text("utf-8"), flags=re.DOTALL)


def text_of(page: Path) -> str:
    """Return the words of a page, with single spaces between them."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", without_scripts(page))).split())


def wait_for(driver: Any, script: str, seconds: float = 600.0) -> Any:
    """Return the value of a script's expression as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := driver.execute_script(f"return {script}")):
        assert time.monotonic() < end, f"not true after {seconds:g} s: {script}"
        time.sleep(0.05)
    return value
