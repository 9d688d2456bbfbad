"""A real browser, headless Chromium: the page of the FastAPI example over HTTP, WebSocket and TLS; calls of a page."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import WAIT_SECONDS, Server, with_http_option
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import text_to_be_present_in_element
from selenium.webdriver.support.wait import WebDriverWait
from serving import ANY_PORT, EXAMPLES, Serving

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
FIRST_EVENT = """
const done = arguments[0], source = new EventSource("/events");
source.onmessage = (event) => { source.close(); done(event.data); };
"""

CALL = """
const [url, done] = arguments;
const headers = {"Content-Type": "application/json", "Authorization": "Bearer secret", "X-Request-Id": "from-a-page"};
fetch(url, {method: "POST", headers, body: '{"n": 2}'})
  .then(async (answer) => done([answer.status, await answer.text(), answer.headers.get("x-request-id")]))
  .catch((error) => done(String(error)));
"""

pytestmark = pytest.mark.skipif(
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

    def say(self, text: str) -> None:
        self.driver.find_element(By.ID, "text").send_keys(text, Keys.ENTER)

    @property
    def protocol(self) -> str:
        """Over which the page came."""
        return self.driver.execute_script('return performance.getEntriesByType("navigation")[0].nextHopProtocol')


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.accept_insecure_certs = True
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(flag)
    # A driver that is named is not looked for, nor downloaded.
    driver = webdriver.Chrome(options, Service(executable_path=DRIVER))
    driver.set_script_timeout(WAIT_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.mark.parametrize("letters", ["-w 1", "-w 3 -k sync"])
def test_a_page_speaks_websocket(browser: Browser, letters: str) -> None:
    """Under `sync` its WebSocket has a worker to itself."""
    with Serving(EXAMPLES, "serve_fastapi:app", "-b", ANY_PORT, *letters.split()) as serving:
        serving.wait_ready("web")
        browser.open(serving.url)
        browser.wait_for("#state", "listening")
        browser.say("hello")
        browser.wait_for("#log li:nth-child(1)", "You said: hello")
        browser.say("naïve ☺")
        browser.wait_for("#log li:nth-child(2)", "You said: naïve ☺")
        assert browser.protocol == "http/1.1"
        assert browser.driver.execute_async_script(FIRST_EVENT) == '{"tick":0}'


def test_a_page_hears_of_a_reload_and_may_come_back(browser: Browser) -> None:
    with Serving(EXAMPLES, "serve_fastapi:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        browser.open(serving.url)
        browser.wait_for("#state", "listening")
        serving.send(signal.SIGHUP)
        browser.wait_for("#state", "gone (1012)")
        browser.driver.refresh()
        browser.wait_for("#state", "listening")


def test_over_tls_the_page_comes_by_http2_and_its_websocket_by_http1(browser: Browser, certificate: Path) -> None:
    files = {"--certfile": certificate / "certificate.pem", "--keyfile": certificate / "key.pem"}
    letters = [str(part) for pair in files.items() for part in pair]
    with Serving(EXAMPLES, "serve_fastapi:app", "-w", "1", "-b", ANY_PORT, *letters) as serving:
        serving.wait_ready("web")
        port = serving.err.wait(r"serve: https://\S+:(\d+)")[1]
        browser.open(f"https://localhost:{port}/")
        browser.wait_for("#state", "listening")
        browser.say("in secret")
        browser.wait_for("#log li", "You said: in secret")
        assert browser.protocol == "h2"
        assert browser.driver.execute_async_script(FIRST_EVENT) == '{"tick":0}'


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_page_of_a_listed_origin_calls_tools(browser: Browser, tmp_path: Path, is_listed: bool) -> None:
    with Serving(EXAMPLES, "serve_fastapi:app", "-w", "1", "-b", ANY_PORT) as serving:
        serving.wait_ready("web")
        origins = [serving.url] if is_listed else ["http://localhost:1"]
        config = '[pools.api]\ntarget = "served"\nworkers = 1\n' + with_http_option(
            f'cors_origins = {origins}\ntoken = "secret"'
        )
        with Server(tmp_path, config) as server:
            server.wait_ready("api")
            browser.open(serving.url)
            url = f"http://{server.http}/pools/api/tools/countdown"
            found = browser.driver.execute_async_script(CALL, url)
            expected = [200, "2\n1\n", "from-a-page"] if is_listed else "TypeError: Failed to fetch"
            assert found == expected
