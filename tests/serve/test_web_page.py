"""The page in Chromium, with a running service: photos in, words on the picture, and errors in plain words."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from captioner import Captioner
from captioner.evidence.word_evidence import with_alternatives
from captioner.writers.lines import COLUMNS
from tests.overlay.browser import browser, complaints, contrasts, phone, requests, scheme  # noqa: F401
from tests.serve.pictures import b64, png
from tests.serve.running import Running, running

# Gives the page a file as a user would: `kind` is drop or paste.
GIVE = """
const [kind, data, name] = arguments, transfer = new DataTransfer();
transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type: "image/png" }));
document.body.dispatchEvent(kind === "drop"
  ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
  : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
"""


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Running]:
    with running("--model", str(model), "--max-body", "1") as service:
        yield service


@pytest.fixture
def page(browser: WebDriver, service: Running) -> Iterator[WebDriver]:  # noqa: F811
    browser.get("about:blank")
    complaints(browser), requests(browser)
    browser.get(service.url + "/")
    yield browser
    assert complaints(browser) == []
    assert {url for url in requests(browser) if not url.startswith((service.url, "blob:", "about:"))} == set()


load = lru_cache(Captioner.load)


def library(model: Path, data: Any, **options: Any) -> Any:
    """The caption that the library gives."""
    return load(model)(data, **options)


def wait(page: WebDriver, condition: Any) -> Any:
    return WebDriverWait(page, 20).until(condition)


def sentence(page: WebDriver) -> str:
    words = "return [...document.querySelectorAll('.cv-sentence .cv-word')].map((word) => word.textContent)"
    return " ".join(page.execute_script(words))


def give(page: WebDriver, data: bytes, name: str = "photo.png", kind: str = "drop") -> None:
    page.execute_script(GIVE, kind, b64(data), name)


def button(page: WebDriver, text: str) -> Any:
    (found,) = (each for each in page.find_elements(By.TAG_NAME, "button") if each.text == text)
    return found


def text_of(page: WebDriver, css: str) -> str:
    return str(page.find_element(By.CSS_SELECTOR, css).get_attribute("textContent"))


def assert_only_refusals_are_logged(page: WebDriver, service: Running, count: int) -> None:
    """Chromium itself reports each answer with an error status. The page must add nothing to these messages."""
    refusal = (
        f"{service.url}/v1/overlay?format=json - Failed to load resource: the server responded with a status of 422"
    )
    assert [message[: len(refusal)] for message in complaints(page)] == [refusal] * count


def canvas(page: WebDriver) -> str:
    return str(page.execute_script("return document.querySelector('.cv-stage canvas').toDataURL()"))


@pytest.mark.parametrize("kind", ["drop", "paste", "choose"])
def test_a_photo_is_captioned_and_its_words_light_up_the_picture(
    page: WebDriver, model: Path, tmp_path: Path, kind: str
):
    expected = library(model, png(3), n_best=2)
    if kind == "choose":
        (tmp_path / "photo.png").write_bytes(png(3))
        page.find_element(By.ID, "file").send_keys(str(tmp_path / "photo.png"))
    else:
        give(page, png(3), kind=kind)
    wait(page, lambda page: sentence(page) == expected.text)
    assert text_of(page, "#status") == expected.sentence  # what a screen reader says
    assert page.title.startswith(expected.sentence)
    words = page.find_elements(By.CSS_SELECTOR, ".cv-sentence button")
    ActionChains(page).move_to_element(words[0]).perform()
    wait(page, lambda page: words[0].get_attribute("aria-pressed") == "true")
    first = canvas(page)
    ActionChains(page).move_to_element(words[-1]).perform()
    wait(page, lambda page: words[-1].get_attribute("aria-pressed") == "true")
    assert canvas(page) != first
    listed = [item.text.split("\n")[0] for item in page.find_elements(By.CSS_SELECTOR, ".cv-others button")]
    assert listed == [expected.text, *(other.text for other in expected.alternatives)]


def test_erasing_a_part_and_captioning_again_shows_what_the_words_depended_on(page: WebDriver, model: Path):
    data = next(png(seed) for seed in range(100) if erased_caption(model, png(seed)) != library(model, png(seed)).text)
    give(page, data)
    wait(page, lambda page: sentence(page) == library(model, data).text)
    button(page, "Erase a part").click()
    stage = page.find_element(By.CSS_SELECTOR, ".cv-stage")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", stage)
    across, down = stage.size["width"] // 4, stage.size["height"] // 4
    ActionChains(page).move_to_element_with_offset(stage, -across, -down).click_and_hold().move_by_offset(
        4, 4
    ).release().perform()
    button(page, "Caption again").click()
    wait(page, lambda page: sentence(page) == erased_caption(model, data))
    button(page, "Back to the whole picture").click()
    assert sentence(page) == library(model, data).text


def erased_caption(model: Path, data: bytes) -> str:
    """The library's caption of the picture with its upper left quarter in the mean color of the picture."""
    pixels = np.asarray(Image.open(io.BytesIO(data))).copy()
    half = len(pixels) // 2
    pixels[:half, :half] = np.rint(pixels.reshape(-1, 3).mean(0))
    return str(library(model, pixels).text)


def test_a_word_can_be_forbidden_from_the_panel_of_the_word(page: WebDriver, model: Path):
    give(page, png(3))
    word = library(model, png(3)).words[0].text
    wait(page, lambda page: sentence(page))
    page.find_elements(By.CSS_SELECTOR, ".cv-sentence button")[0].click()
    button(page, f"Caption again without “{word}”").click()
    wait(page, lambda page: sentence(page) == library(model, png(3), forbidden=[word]).text)


def test_the_panel_of_a_word_tells_what_else_the_model_could_have_said(page: WebDriver, model: Path):
    give(page, png(3))
    wait(page, lambda page: sentence(page))
    assert_panel_names_the_likeliest_words(page, model)


def assert_panel_names_the_likeliest_words(page: WebDriver, model: Path) -> None:
    """For each word of the caption of png(3)."""
    captioner = load(model)
    expected = with_alternatives(captioner, captioner(png(3), keep_pictures=True))
    assert sentence(page) == expected.text
    for button, word in zip(page.find_elements(By.CSS_SELECTOR, ".cv-sentence button"), expected.words, strict=True):
        button.click()
        rows = page.find_elements(By.CSS_SELECTOR, ".cv-facts .cv-words li span:first-child")
        assert [row.text for row in rows] == [text for text, _ in word.alternatives]


def test_options_change_the_caption_and_the_wording(page: WebDriver, service: Running, model: Path):
    give(page, png(1))
    wait(page, lambda page: sentence(page))
    page.find_element(By.CSS_SELECTOR, "#options summary").click()
    page.find_element(By.NAME, "required").send_keys("mat|sleeps")
    page.find_element(By.NAME, "beam").send_keys("4")
    page.find_element(By.NAME, "style").send_keys("plain")
    page.find_element(By.CSS_SELECTOR, "#options [type=submit]").click()
    expected = library(model, png(1), required="mat|sleeps", beam=4).text
    wait(page, lambda page: sentence(page) == expected)
    assert text_of(page, "#status") == expected
    field = page.find_element(By.NAME, "required")
    field.clear()
    field.send_keys("zebra", Keys.ENTER)
    wait(page, lambda page: "zebra" in text_of(page, "#error"))
    assert text_of(page, "#error").startswith("The options don't fit")
    assert sentence(page) == expected  # the last caption is still there
    assert_only_refusals_are_logged(page, service, 1)


@pytest.mark.parametrize(
    ("data", "words", "requests_refused"),
    [
        (b"this is no picture", "photo.png can't be read as a photo", 1),
        (png()[:60], "photo.png can't be read as a photo", 1),
        (b"\0" * 1_100_000, "photo.png is larger than this service allows", 0),  # it is not even sent
    ],
)
def test_a_broken_or_large_file_is_refused_in_the_page_s_own_words(
    page: WebDriver, service: Running, data: bytes, words: str, requests_refused: int
):
    give(page, data)
    wait(page, lambda page: words in text_of(page, "#error"))
    assert page.find_element(By.ID, "error").is_displayed()
    assert not page.find_element(By.ID, "result").is_displayed()
    assert_only_refusals_are_logged(page, service, requests_refused)


def test_the_history_brings_a_photo_back(page: WebDriver, model: Path):
    captions = {library(model, png(seed)).text: seed for seed in range(20)}
    (texts, seeds) = list(captions)[:2], list(captions.values())[:2]
    for seed, text in zip(seeds, texts, strict=True):
        give(page, png(seed), f"{seed}.png")
        wait(page, lambda page, text=text: sentence(page) == text)
    assert len(page.find_elements(By.CSS_SELECTOR, "#history li")) == 2
    page.find_elements(By.CSS_SELECTOR, "#history button")[1].click()
    assert sentence(page) == texts[0]


def test_the_chosen_caption_is_copied_as_alt_text(page: WebDriver, service: Running, model: Path):
    page.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": service.url},
    )
    expected = library(model, png(3), n_best=2)
    give(page, png(3))
    wait(page, lambda page: sentence(page) == expected.text)
    page.find_elements(By.CSS_SELECTOR, ".cv-others button")[1].click()
    button(page, "Copy as alt text").click()
    wait(page, lambda page: text_of(page, "#status").startswith("Copied"))
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
    assert page.execute_async_script(read) == expected.alternatives[0].sentence


def test_the_sheet_and_the_page_are_downloaded(page: WebDriver, tmp_path: Path):
    behavior = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
    give(page, png(3), "my photo.png")
    wait(page, lambda page: sentence(page))
    for text, name in (("Download the sheet", "my photo-overlay.png"), ("Download the page", "my photo.html")):
        button(page, text).click()
        wait(page, lambda page, name=name: (tmp_path / name).exists() and (tmp_path / name).stat().st_size > 0)
    with Image.open(tmp_path / "my photo-overlay.png") as sheet:
        assert sheet.width > 100
    assert (tmp_path / "my photo.html").read_text().startswith("<!DOCTYPE html>")


def test_downloads_draw_the_caption_that_the_page_shows(page: WebDriver, service: Running, model: Path, tmp_path: Path):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})

    def check_downloads(**options: str) -> None:
        """The files are those of a request with these options, and they show the sentence of the page."""
        with service.client() as client:
            for text, file, format in (
                ("Download the sheet", "photo-overlay.png", "png"),
                ("Download the page", "photo.html", "html"),
            ):
                button(page, text).click()
                path = tmp_path / file
                wait(page, lambda page, path=path: path.exists() and path.stat().st_size > 0)
                files = {"file": ("photo.png", png(3))}
                drawn = client.post(f"/v1/overlay?format={format}", files=files, data=options).content
                assert path.read_bytes() == drawn
                if format == "html":
                    assert f"<title>{sentence(page)}</title>" in drawn.decode()
                path.unlink()

    expected = library(model, png(3), n_best=2)
    give(page, png(3))
    wait(page, lambda page: sentence(page) == expected.text)
    page.find_elements(By.CSS_SELECTOR, ".cv-others button")[1].click()
    assert sentence(page) == expected.alternatives[0].text
    check_downloads(rank="2")
    page.find_elements(By.CSS_SELECTOR, ".cv-others button")[0].click()
    check_downloads()
    word = expected.words[0].text
    page.find_elements(By.CSS_SELECTOR, ".cv-sentence button")[0].click()
    button(page, f"Caption again without “{word}”").click()
    wait(page, lambda page: sentence(page) == library(model, png(3), forbidden=[word]).text)
    check_downloads(forbidden=word)
    button(page, "Back to the whole picture").click()
    button(page, "Erase a part").click()
    stage = page.find_element(By.CSS_SELECTOR, ".cv-stage")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", stage)
    across, down = stage.size["width"] // 4, stage.size["height"] // 4
    ActionChains(page).move_to_element_with_offset(stage, -across, -down).click().perform()
    button(page, "Caption again").click()
    wait(page, lambda page: text_of(page, ".cv-guide").startswith("Without the erased part"))
    check_downloads(erase="0:0")


def test_a_batch_becomes_a_table_and_a_broken_file_does_not_stop_it(
    page: WebDriver, service: Running, model: Path, tmp_path: Path
):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    files = {"=1.png": png(1), "broken.png": b"no picture", "2.png": png(2)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    page.find_element(By.ID, "file").send_keys("\n".join(str(tmp_path / name) for name in files))
    wait(page, lambda page: text_of(page, "#status") == "2 of 3 photos have captions.")
    assert "broken.png can't be read as a photo" in text_of(page, "#error")
    button(page, "Download captions (CSV)").click()
    wait(page, lambda page: (tmp_path / "captions.csv").exists())
    with (tmp_path / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    captions = [library(model, png(seed)) for seed in (1, 2)]
    assert [row["image"] for row in rows] == ["'=1.png", "2.png"]  # a spreadsheet would compute the first name
    assert [row["sentence"] for row in rows] == [caption.sentence for caption in captions]
    assert [float(row["score"]) for row in rows] == pytest.approx([caption.score for caption in captions], abs=1e-5)
    assert_only_refusals_are_logged(page, service, 1)


def test_a_photo_is_taken_with_the_camera(page: WebDriver):
    button(page, "Take a photo").click()
    dialog = page.find_element(By.ID, "webcam")
    wait(page, lambda page: dialog.is_displayed())
    wait(page, lambda page: page.execute_script("return document.querySelector('#webcam video').videoWidth > 0"))
    button(page, "Take the photo").click()
    wait(page, lambda page: sentence(page))
    assert not dialog.is_displayed()
    assert page.find_element(By.ID, "capture").get_attribute("capture") == "environment"  # a phone's own camera


def test_the_keyboard_reaches_everything(page: WebDriver):
    reached = []
    for _ in range(4):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(page.switch_to.active_element.text)
    assert reached == ["HTTP calls", "Choose a photo", "Take a photo", "Options"]
    give(page, png(3))
    wait(page, lambda page: sentence(page))
    words = page.find_elements(By.CSS_SELECTOR, ".cv-sentence button")
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    assert words[1].get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("name", ["light", "dark"])
def test_texts_have_contrast_in_both_color_schemes(page: WebDriver, name: str):
    scheme(page, name)
    assert min(contrasts(page).values()) >= 4.5
    give(page, png(3))
    wait(page, lambda page: sentence(page))
    page.find_element(By.CSS_SELECTOR, "#options summary").click()
    low = {text: round(value, 1) for text, value in contrasts(page).items() if value < 4.5}
    scheme(page, "light")
    assert low == {}


def test_a_phone_of_390_pixels_shows_everything_without_scrolling_sideways(page: WebDriver):
    with phone(page):
        give(page, png(3))
        wait(page, lambda page: sentence(page))
        page.find_element(By.CSS_SELECTOR, "#options summary").click()
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        small = [
            each.text or each.get_attribute("aria-label")
            for each in page.find_elements(By.CSS_SELECTOR, "button, select, input")
            if each.is_displayed() and min(each.size["height"], each.size["width"]) < 20
        ]
        assert small == []


def test_a_service_with_a_token_asks_for_it(browser: WebDriver, model: Path, tmp_path: Path):  # noqa: F811
    (tmp_path / "token").write_text("s3cret")
    with running("--model", str(model), "--token-file", str(tmp_path / "token")) as guarded:
        browser.get(guarded.url + "/")
        give(browser, png(3))
        wait(browser, lambda page: page.find_element(By.ID, "token").is_displayed())
        browser.find_element(By.NAME, "token").send_keys("s3cret", Keys.ENTER)
        wait(browser, lambda page: sentence(page) == library(model, png(3)).text)
        complaints(browser)
        guarded.stop()
        give(browser, png(1))
        wait(browser, lambda page: "can't be reached" in text_of(page, "#error"))
    time.sleep(0.1)
    complaints(browser)
