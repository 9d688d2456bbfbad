"""The page to try calls, in a real browser: a call by clicking, a token, light and dark, and nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.browser import Browser, browser, needs_chromium
from support.clutch_process import FRONTS, Server, with_http_option
from support.rendezvous import Rendezvous

__all__ = ["browser"]
pytestmark = needs_chromium

ONE_POOL = '[pools.api]\ntarget = "schema_tools"\nworkers = 1\n'
DEPTH = "[id$=depth]"
WAITS = "[id$=waits_between]"
LOADED = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
SET_BODY = """
const [area, text] = arguments;
Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(area, text);
area.dispatchEvent(new Event("input", { bubbles: true }));
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, ONE_POOL + FRONTS) as server:
        server.wait_ready("api")
        yield server


def call_depth(browser: Browser, node: object) -> None:
    browser.find(f"{DEPTH} .opblock-summary-control").click()
    area = browser.find(f"{DEPTH} textarea")
    browser.driver.execute_script(SET_BODY, area, json.dumps({"node": node}))
    browser.find(f"{DEPTH} button.execute").click()


def test_a_call_by_clicking(browser: Browser, server: Server) -> None:
    browser.open(f"http://{server.http}/")
    call_depth(browser, {"value": 1, "children": [{"value": 2}]})
    browser.wait_for(f"{DEPTH} .live-responses-table .highlight-code", '"result": 2')
    assert browser.driver.get_log("browser") == []  # its policy refuses nothing that the page needs
    hosts = {urlsplit(name).netloc for name in browser.driver.execute_script(LOADED)}
    assert hosts == {server.http}


def test_a_stream_is_shown_as_it_comes(browser: Browser, tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Server(tmp_path, ONE_POOL.replace("schema_tools", "http_tools") + FRONTS) as server:
        server.wait_ready("api")
        browser.open(f"http://{server.http}/")
        browser.find(f"{WAITS} .opblock-summary-control").click()
        area = browser.find(f"{WAITS} textarea")
        browser.driver.execute_script(SET_BODY, area, json.dumps({"port": rendezvous.port}))
        browser.find(f"{WAITS} button.execute").click()
        browser.wait_for("#stream-text", '"first"')
        guest = rendezvous.guest()
        assert browser.find("#stream-name").text == "waits_between: running"
        guest.let_go()
        browser.wait_for("#stream-name", "waits_between: ended")
        assert browser.find("#stream-text").text.split() == ['"first"', '"second"']
        browser.wait_for(f"{WAITS} .live-responses-table .highlight-code", "second")


def test_the_page_follows_the_color_scheme(browser: Browser, server: Server) -> None:
    browser.prefer("dark")
    browser.open(f"http://{server.http}/")
    root = "html.dark-mode .opblock"
    assert browser.find(root)
    browser.prefer("light")
    assert browser.find("html:not(.dark-mode) .opblock")


def test_a_token_is_typed_in(browser: Browser, tmp_path: Path) -> None:
    with Server(tmp_path, ONE_POOL + with_http_option('token = "s3cret"')) as server:
        server.wait_ready("api")
        browser.open(f"http://{server.http}/")
        browser.say("wrong", "#token")
        browser.wait_for("#problem", "does not accept this token")
        browser.find("#token").clear()
        browser.say("s3cret", "#token")
        call_depth(browser, {"value": 1})
        browser.wait_for(f"{DEPTH} .live-responses-table .highlight-code", '"result": 1')
