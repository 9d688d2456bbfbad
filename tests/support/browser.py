"""A real browser for tests: headless Chromium, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import text_to_be_present_in_element, visibility_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from support.clutch_process import WAIT_SECONDS

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # in containers, and for root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium is missing: make chromium, or apt-get install chromium chromium-driver"
)


@dataclass
class Browser:
    driver: webdriver.Chrome

    def open(self, url: str) -> None:
        self.driver.get(url)

    def wait_for(self, place: str, text: str) -> None:
        """Until a part of the page says so."""
        WebDriverWait(self.driver, WAIT_SECONDS, 0.05).until(
            text_to_be_present_in_element((By.CSS_SELECTOR, place), text),
            f"{text!r} is not in:\n{self.driver.page_source}",
        )

    def find(self, place: str) -> WebElement:
        """A part of the page, once it can be seen."""
        return WebDriverWait(self.driver, WAIT_SECONDS, 0.05).until(
            visibility_of_element_located((By.CSS_SELECTOR, place)),
            f"{place!r} is not in:\n{self.driver.page_source}",
        )

    def say(self, text: str, place: str = "#text") -> None:
        self.find(place).send_keys(text, Keys.ENTER)

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system says it."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    @property
    def protocol(self) -> str:
        """Over which the page came."""
        return self.driver.execute_script('return performance.getEntriesByType("navigation")[0].nextHopProtocol')


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={folder / 'browser'}"):
        options.add_argument(flag)
    # A driver that is named is not looked for, nor downloaded.
    driver = webdriver.Chrome(options, Service(executable_path=DRIVER))
    driver.set_script_timeout(WAIT_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with browsing(tmp_path) as browser:
        yield browser
