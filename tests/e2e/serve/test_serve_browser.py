"""A real browser, headless Chromium: the page of the FastAPI example over HTTP, WebSocket and TLS; calls of a page."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.browser import Browser, browser, needs_chromium
from support.clutch_process import Server, with_http_option
from support.serve_process import ANY_PORT, EXAMPLES, Serving

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

__all__ = ["browser"]
pytestmark = needs_chromium


@pytest.mark.parametrize("flags", ["-w 1", "-w 3 -k sync"])
def test_a_page_speaks_websocket(browser: Browser, flags: str) -> None:
    """Under `sync` its WebSocket has a worker to itself."""
    with Serving(EXAMPLES, "serve_fastapi:app", "-b", ANY_PORT, *flags.split()) as serving:
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
    flags = [str(part) for pair in files.items() for part in pair]
    with Serving(EXAMPLES, "serve_fastapi:app", "-w", "1", "-b", ANY_PORT, *flags) as serving:
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
        config = '[pools.api]\ntarget = "http_tools"\nworkers = 1\n' + with_http_option(
            f'cors_origins = {origins}\ntoken = "secret"'
        )
        with Server(tmp_path, config) as server:
            server.wait_ready("api")
            browser.open(serving.url)
            url = f"http://{server.http}/pools/api/tools/countdown"
            found = browser.driver.execute_async_script(CALL, url)
            expected = [200, "2\n1\n", "from-a-page"] if is_listed else "TypeError: Failed to fetch"
            assert found == expected
