"""Reports in a real browser, opened as a file and without a network: light, dark, on a phone and on paper."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from clutch.lab.page import page
from support import reports
from support.browser import Browser, browser, needs_chromium
from support.clutch_process import WAIT_SECONDS

pytest.importorskip("vl_convert", reason="vl-convert-python is missing: pip install 'clutch[report]'")

__all__ = ["browser"]
pytestmark = needs_chromium

DESKTOP, PHONE = (1200, 900), (390, 844)
CHARTS = len(reports.realistic().charts)
IS_SCROLLED = "const root = document.documentElement; return root.scrollWidth > root.clientWidth"
# A scroll hides what is told; the page hears of it before its next frame.
SCROLLED_TO = """
const [one, done] = arguments;
one.scrollIntoView({block: "center"});
requestAnimationFrame(() => requestAnimationFrame(done));
"""
COLORS = """
const drawing = [...document.querySelectorAll(".drawing svg")].find((one) => one.getClientRects().length);
const ground = getComputedStyle(document.body).backgroundColor;
return [ground, getComputedStyle(document.body).color, getComputedStyle(drawing.querySelector("[data-tip]")).fill];
"""


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Browser:
    """The page of a realistic report, with the network off."""
    file = tmp_path / "report.html"
    file.write_text(page(reports.realistic()), encoding="utf-8")
    command(browser, "Network.enable")
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    command(browser, "Network.emulateNetworkConditions", **offline)
    browser.prefer("light")
    resize(browser, DESKTOP)
    browser.open(file.as_uri())
    return browser


def command(browser: Browser, name: str, **given: Any) -> dict[str, Any]:
    return browser.driver.execute_cdp_cmd(name, given)


def resize(browser: Browser, size: tuple[int, int]) -> None:
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    command(browser, "Emulation.setDeviceMetricsOverride", **metrics)


def drawings(browser: Browser) -> list[WebElement]:
    """Those that are seen."""
    return [one for one in browser.driver.find_elements("css selector", ".drawing svg") if one.is_displayed()]


def colors(browser: Browser) -> list[list[int]]:
    """Red, green and blue of the ground, of text, and of a part of the first drawing."""
    return [list(map(int, re.findall(r"\d+", color)[:3])) for color in browser.driver.execute_script(COLORS)]


def assert_whole(browser: Browser) -> None:
    """Each chart is drawn once, within the page; nothing was complained of."""
    found = drawings(browser)
    assert len(found) == CHARTS
    assert all(one.size["width"] > 250 and one.size["height"] > 100 for one in found)
    assert all(one.find_elements("css selector", "[data-tip]") for one in found)
    assert not browser.driver.execute_script(IS_SCROLLED)
    assert not browser.driver.get_log("browser")


def test_on_a_desk(opened: Browser) -> None:
    assert_whole(opened)
    assert opened.driver.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_light_and_dark_follow_the_system(opened: Browser) -> None:
    light = colors(opened)
    opened.prefer("dark")
    dark = colors(opened)
    assert min(light[0]) > 200 > 100 > max(light[1])
    assert max(dark[0]) < 50 < 150 < min(dark[1])
    assert light[2] != dark[2]
    assert_whole(opened)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(opened: Browser, scheme: str) -> None:
    opened.prefer(scheme)
    resize(opened, PHONE)
    assert_whole(opened)
    tables = opened.driver.find_elements("css selector", ".sheet .scrolls")
    is_wide = "return arguments[0].scrollWidth > arguments[0].clientWidth"
    assert any(opened.driver.execute_script(is_wide, one) for one in tables)


def test_on_paper(opened: Browser) -> None:
    opened.prefer("dark")
    command(opened, "Emulation.setEmulatedMedia", media="print")
    assert min(colors(opened)[0]) > 200
    assert_whole(opened)
    assert not [one for one in opened.driver.find_elements("css selector", "details, button") if one.is_displayed()]
    paper = base64.b64decode(command(opened, "Page.printToPDF")["data"])
    assert paper.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", paper)) in range(2, 6)


def test_what_is_pointed_at_tells_its_figures(opened: Browser) -> None:
    for drawing in drawings(opened):
        opened.driver.execute_async_script(SCROLLED_TO, drawing)
        marks = drawing.find_elements("css selector", "[data-tip]")
        ActionChains(opened.driver).move_to_element(marks[0]).perform()
        assert opened.find("#tip").text in [mark.get_dom_attribute("data-tip") for mark in marks]
    ActionChains(opened.driver).move_to_element(opened.find("h1")).perform()
    assert not opened.driver.find_element("id", "tip").is_displayed()


def test_data_is_saved_as_a_file(opened: Browser, tmp_path: Path) -> None:
    command(opened, "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.find("#save").click()
    saved = tmp_path / "report.json"
    WebDriverWait(opened.driver, WAIT_SECONDS, 0.05).until(lambda _: saved.exists() and saved.stat().st_size)
    assert '"rate": 4812.25' in saved.read_text()
    assert not opened.driver.get_log("browser")


def test_a_script_that_slipped_in_does_not_run(browser: Browser, tmp_path: Path) -> None:
    """The second wall: should a text ever break out, the page's policy stops what it brings."""
    file = tmp_path / "report.html"
    intruder = '<script>document.title = "taken"</script><img src="x" onerror="document.title = \'taken\'"></main>'
    file.write_text(page(reports.realistic()).replace("</main>", intruder), encoding="utf-8")
    browser.open(file.as_uri())
    assert browser.driver.title == reports.realistic().title
    assert "Content Security Policy" in str(browser.driver.get_log("browser"))
