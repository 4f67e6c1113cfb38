"""The review page in a real browser: edit, approve, undo, filter, replace and save, all from the keyboard."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select

from captioner.errors import UsageError
from captioner.writers.review_page import ReviewPage
from captioner.writers.saved_captions import read_saved
from captioner.writers.wording import Wording
from tests.overlay.browser import browser, complaints, contrasts, requests, scheme  # noqa: F401
from tests.overlay.handmade_captions import caption

CAPTIONS = ["a dog runs", "a cat sits", "a man and a dog", "dogs <b>on</b> </script> grass", "a dogma"]


def write(path: Path, texts: list[str] = CAPTIONS, *, resume: bool = False, wording: Wording | None = None) -> None:
    page = ReviewPage(path, resume=resume, wording=wording)
    for i, text in enumerate(texts, len(page.finished)):
        made = replace(caption(text, alternatives=("a puppy",) if i == 0 else ()), confidence=0.9 - 0.2 * i)
        page.write(f"photos/{i}.jpg", made)
    page.close()


@pytest.fixture
def opened(browser: WebDriver, tmp_path: Path):  # noqa: F811
    """The opened page. The test fails if the page writes to the console or requests anything."""
    write(tmp_path / "review.html", wording=Wording(min_confidence=0.2))
    address = (tmp_path / "review.html").as_uri()
    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    complaints(browser), requests(browser)
    browser.get(address)
    yield browser
    assert complaints(browser) == []
    assert {url for url in requests(browser) if not url.startswith("blob:")} <= {address}
    browser.execute_script("localStorage.clear(); window.onbeforeunload = null;")


def keys(driver: WebDriver, *pressed: str) -> None:
    ActionChains(driver).send_keys(*pressed).perform()


def sentences(driver: WebDriver) -> list[str]:
    return [str(area.get_property("value")) for area in driver.find_elements(By.CSS_SELECTOR, ".card textarea")]


def status(driver: WebDriver) -> str:
    return driver.find_element(By.ID, "progress").text


def saved(driver: WebDriver, path: Path) -> dict[str, list[str]]:
    for _ in range(100):
        if path.is_file() and path.stat().st_size:
            return {name: [one.text for one in captions] for name, captions in read_saved(path).items()}
        time.sleep(0.05)
    raise AssertionError("nothing was saved")


def test_every_photo_is_shown_with_its_caption_and_confidence(opened: WebDriver):
    assert sentences(opened) == ["A dog runs.", "A cat sits.", "A man and a dog.", *sentences(opened)[3:]]
    assert "</script>" in sentences(opened)[3]
    cards = opened.find_elements(By.CSS_SELECTOR, ".card")
    assert "photos/0.jpg" in cards[0].text and "90 %" in cards[0].text and "10 % ?" in cards[4].text
    assert all(image.get_property("naturalWidth") for image in opened.find_elements(By.TAG_NAME, "img"))


def test_captions_are_approved_edited_and_saved_from_the_keyboard(opened: WebDriver, tmp_path: Path):
    keys(opened, "a", Keys.ENTER, "A grey cat sits.", Keys.ENTER, "j", "a")
    assert status(opened) == "2 approved, 1 edited"
    keys(opened, "s")
    captions = saved(opened, tmp_path / "captions.jsonl")
    assert captions["photos/0.jpg"] == ["A dog runs."] and captions["photos/1.jpg"] == ["A grey cat sits."]
    rows = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert [row["approved"] for row in rows] == [True, False, True, False, False]
    assert [row["edited"] for row in rows] == [False, True, False, False, False]
    assert rows[1]["caption"] == "a cat sits" and rows[1]["confidence"] == 0.7


def test_approved_captions_are_saved_as_csv(opened: WebDriver, tmp_path: Path):
    keys(opened, "j", "j", "j", "a")
    Select(opened.find_element(By.ID, "which")).select_by_value("approved")
    Select(opened.find_element(By.ID, "format")).select_by_value("csv")
    opened.find_element(By.ID, "save").click()
    assert saved(opened, tmp_path / "captions.csv") == {"photos/3.jpg": [sentences(opened)[3]]}


def test_every_change_can_be_undone_and_escape_takes_an_edit_back(opened: WebDriver):
    keys(opened, Keys.ENTER, "Nonsense", Keys.ESCAPE)
    assert sentences(opened)[0] == "A dog runs."
    keys(opened, "1")
    assert sentences(opened)[0] == "A puppy."
    keys(opened, " ")
    assert status(opened) == "1 approved, 1 edited"
    keys(opened, "u", "u", "u")
    assert status(opened) == "0 approved, 0 edited" and sentences(opened)[0] == "A dog runs."


def test_find_and_replace_shows_what_changes_before_it_does(opened: WebDriver):
    keys(opened, "r", "dog", Keys.TAB, "wolf")
    preview = [entry.text for entry in opened.find_elements(By.CSS_SELECTOR, "#preview li")]
    assert preview == ["A dog runs. A wolf runs.", "A man and a dog. A man and a wolf."]
    assert opened.find_element(By.ID, "matches").text == "2 of 5 captions change"
    assert sentences(opened)[0] == "A dog runs."
    keys(opened, Keys.ENTER)
    assert sentences(opened)[:3] == ["A wolf runs.", "A cat sits.", "A man and a wolf."]
    assert sentences(opened)[4] == "A dogma."
    keys(opened, "u")
    assert sentences(opened)[0] == "A dog runs." and sentences(opened)[2] == "A man and a dog."


def test_photos_are_filtered_by_confidence_state_and_text(opened: WebDriver):
    opened.execute_script("limit.value = 50; limit.dispatchEvent(new Event('input'))")
    assert len(sentences(opened)) == 3 and "3 shown" in status(opened)
    opened.execute_script("limit.value = 100; limit.dispatchEvent(new Event('input'))")
    Select(opened.find_element(By.ID, "order")).select_by_value("low")
    assert sentences(opened)[0] == "A dogma."
    opened.find_element(By.ID, "order").send_keys(Keys.ENTER)  # leaves the list: keys are for the photos again
    keys(opened, Keys.ENTER, "Not a dog.", Keys.ENTER)
    assert sentences(opened)[0] == "Not a dog."
    keys(opened, "u")
    Select(opened.find_element(By.ID, "state")).select_by_value("unsure")
    assert sentences(opened) == ["A dogma."]
    Select(opened.find_element(By.ID, "state")).select_by_value("all")
    opened.find_element(By.ID, "query").send_keys("cat")
    assert sentences(opened) == ["A cat sits."]
    opened.find_element(By.ID, "query").send_keys("zzz")
    assert opened.find_element(By.ID, "empty").is_displayed()


def test_work_is_there_again_after_the_page_was_closed(opened: WebDriver):
    keys(opened, "a", Keys.ENTER, "A tabby.", Keys.ENTER)
    opened.execute_script("addEventListener('beforeunload', (e) => e.stopImmediatePropagation(), true)")
    opened.refresh()
    assert sentences(opened)[1] == "A tabby." and status(opened) == "1 approved, 1 edited"


@pytest.mark.parametrize("name", ["light", "dark"])
def test_texts_have_enough_contrast_and_a_phone_needs_no_sideways_scrolling(opened: WebDriver, name: str):
    scheme(opened, name)
    keys(opened, "a")
    assert {text: ratio for text, ratio in contrasts(opened).items() if ratio < 4.5} == {}
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_resumed_page_keeps_its_captions(tmp_path: Path):
    write(tmp_path / "review.html", ["a dog"])
    write(tmp_path / "review.html", ["a cat"], resume=True)
    text = (tmp_path / "review.html").read_text()
    assert text.index("A dog.") < text.index("A cat.") and ReviewPage(
        tmp_path / "review.html", resume=True
    ).finished == {
        "photos/0.jpg",
        "photos/1.jpg",
    }
    (tmp_path / "other.html").write_text("<p>another page</p>")
    with pytest.raises(UsageError, match="no review page"):
        ReviewPage(tmp_path / "other.html", resume=True)
