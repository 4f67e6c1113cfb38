"""Headless Chromium for the tests of pages, with a log of its network requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

selenium = pytest.importorskip("selenium", reason="the browser tests need selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.remote.webdriver import WebDriver  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser() -> Iterator[WebDriver]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("no browser found; on Debian: apt-get install chromium chromium-driver")
    with open_browser() as driver:
        yield driver


@contextmanager
def open_browser() -> Iterator[WebDriver]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    camera = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1400", *camera):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def complaints(driver: WebDriver) -> list[str]:
    """The messages on the console since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[attr-defined]


def requests(driver: WebDriver) -> list[str]:
    """The addresses requested since the last call, without data URIs."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]  # type: ignore[attr-defined]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


@contextmanager
def phone(driver: WebDriver) -> Iterator[None]:
    """The screen of a phone, 390 pixels wide."""
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def scheme(driver: WebDriver, name: str) -> None:
    """Set the preferred color scheme: light or dark."""
    feature = {"name": "prefers-color-scheme", "value": name}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


@contextmanager
def paper(driver: WebDriver) -> Iterator[None]:
    """The page as it is printed."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


# Every visible text with its color and the nearest background that is not transparent.
_TEXTS = """
const seen = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.textContent.trim() || !element.checkVisibility() || element.closest("script, .visually-hidden")) continue;
  let under = element, back = "rgba(0, 0, 0, 0)";
  const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  while (under && rgba(back)[3] < 255) { back = getComputedStyle(under).backgroundColor; under = under.parentElement; }
  seen.push([node.textContent.trim().slice(0, 40), rgba(getComputedStyle(element).color), rgba(back)]);
}
return seen;
"""


def contrasts(driver: WebDriver) -> dict[str, float]:
    """The contrast of every text with its background, by the formula of WCAG."""

    def luminance(color: list[int]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    result = {}
    for text, ink, paper in driver.execute_script(_TEXTS):
        light, dark = sorted((luminance(ink), luminance(paper)), reverse=True)
        result[text] = (light + 0.05) / (dark + 0.05)
    return result
