import dataclasses
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from captioner.overlay.gallery import Card, index
from captioner.overlay.overlay_folder import OverlayFolder
from tests.overlay.browser import browser, complaints, contrasts, paper, requests, scheme  # noqa: F401
from tests.overlay.handmade_captions import caption


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    folder = OverlayFolder(tmp_path, ["png", "html", "words"], with_gallery=True)
    for name, text in (("a/dog.jpg", "a dog runs"), ("b/cat #1 ü%.jpg", "a cat sleeps"), ("<b>.jpg", "a <i> dog")):
        folder.add([caption(text, name=name, size=(300, 200))])
    assert folder.finish().files == [tmp_path / "index.html"]
    return tmp_path


def test_a_card_links_to_the_page_or_to_the_next_best_format():
    def card(*kinds: str) -> str:
        return index(
            [Card("dog.jpg", (("", caption("a dog")),), "t.jpg", (3, 2), tuple((k, f"dog.{k}") for k in kinds))]
        )

    assert '<a class="picture" href="dog.html">' in card("png", "html")
    assert '<a class="picture" href="dog.png">' in card("npz", "png", "svg")
    assert 'class="picture"' not in card("npz")


def test_the_gallery_shows_thumbnails_and_captions_and_finds_words(gallery, browser):  # noqa: F811
    complaints(browser), requests(browser)
    browser.get((gallery / "index.html").as_uri())
    images = browser.find_elements(By.TAG_NAME, "img")
    assert [image.get_attribute("alt") for image in images] == ["a dog runs", "a cat sleeps", "a <i> dog"]
    for image in images:
        assert browser.execute_script("return arguments[0].naturalWidth", image) == 300
    browser.find_element(By.ID, "query").send_keys("dog ru")
    assert [card for card in browser.find_elements(By.CLASS_NAME, "card") if card.is_displayed()] == [
        browser.find_elements(By.CLASS_NAME, "card")[0]
    ]
    browser.find_element(By.ID, "query").clear()
    browser.find_element(By.ID, "query").send_keys("dog")
    shown = [card for card in browser.find_elements(By.CLASS_NAME, "card") if card.is_displayed()]
    assert len(shown) == 2 and browser.find_element(By.ID, "count").text == "2 of 3"
    assert complaints(browser) == []
    assert all(url.startswith(gallery.as_uri()) for url in requests(browser))


def test_a_word_shows_its_map_on_the_thumbnails_and_opens_the_page_at_the_word(gallery, browser):  # noqa: F811
    browser.get((gallery / "index.html").as_uri() + "#runs")
    (canvas,) = browser.find_elements(By.CSS_SELECTOR, ".frame canvas")
    dark = browser.execute_script(
        """const [canvas] = arguments, {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return [canvas.width, [...data].filter((_, i) => i % 4 === 3)];""",
        canvas,
    )
    shade = np.array(dark[1]).reshape(-1, dark[0])
    brightest = np.unravel_index(shade.argmin(), shade.shape)
    assert (brightest[0] // 10, brightest[1] // 10) == (0, 2)  # "runs" attends to cell (0, 2)
    links = browser.find_elements(By.CSS_SELECTOR, "a.picture")
    assert links[0].get_attribute("href").endswith("dog.html#3")


@pytest.mark.parametrize("kind", ["html", "npz"])  # with and without a link around the thumbnail
@pytest.mark.parametrize("window", [390, 900])
def test_a_map_covers_the_photo_and_nothing_else_in_any_shape_of_photo(tmp_path, browser, kind, window):  # noqa: F811
    shapes = {"wide": (720, 480), "panorama": (900, 150), "tall": (480, 720), "tower": (100, 900), "tiny": (40, 30)}
    folder = OverlayFolder(tmp_path, [kind], with_gallery=True)
    for name, size in shapes.items():
        folder.add([caption("a dog runs", name=f"{name}.jpg", size=size)])
    folder.finish()
    metrics = {"width": window, "height": 1200, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get((tmp_path / "index.html").as_uri() + "#runs")
        measured = browser.execute_script(
            """const box = (element) => {
              const {x, y, width, height} = element.getBoundingClientRect();
              return [x, y, width, height];
            };
            return [...document.querySelectorAll(".card")].map((card) =>
              [card.firstElementChild, ...card.querySelectorAll(".frame img, .frame canvas")].map(box));"""
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(measured) == len(shapes)
    for (name, (width, height)), boxes in zip(shapes.items(), measured, strict=True):
        well, photo, canvas = map(np.array, boxes)
        np.testing.assert_allclose(canvas, photo, atol=0.1, err_msg=name)
        # The photo has its own shape, so object-fit leaves no empty band. It is as large as its place allows.
        scale = min(well[2] / width, well[3] / height)
        np.testing.assert_allclose(photo[2:], [width * scale, height * scale], rtol=0.01, atol=0.6, err_msg=name)
        np.testing.assert_allclose(photo[:2] + photo[2:] / 2, well[:2] + well[2:] / 2, atol=0.1, err_msg=name)


def test_the_gallery_sorts_by_name_and_by_confidence_where_there_is_one(tmp_path, browser):  # noqa: F811
    folder = OverlayFolder(tmp_path, ["npz"], with_gallery=True)
    for name, sure in (("b.jpg", 0.9), ("a.jpg", None), ("c.jpg", 0.2)):
        folder.add([dataclasses.replace(caption("a dog", name=name), confidence=sure)])
    folder.finish()
    browser.get((tmp_path / "index.html").as_uri())
    order = Select(browser.find_element(By.ID, "order"))

    def names(choice: str) -> str:
        order.select_by_value(choice)
        return "".join(name.text[0] for name in browser.find_elements(By.CLASS_NAME, "name"))

    assert [names(choice) for choice in ("name", "least", "most", "given")] == ["abc", "cba", "bca", "bac"]
    assert "90% sure" in browser.find_element(By.CLASS_NAME, "card").text


def test_pages_of_a_folder_link_to_their_neighbours_and_the_gallery(gallery, browser):  # noqa: F811
    pages = [gallery / f"{stem}.html" for stem in ("dog", "cat #1 ü%", "-b-")]
    browser.get(pages[0].as_uri())
    for page in pages[1:]:
        browser.find_element(By.CSS_SELECTOR, "a[rel=next]").click()
        assert browser.current_url == page.as_uri()
    assert not browser.find_elements(By.CSS_SELECTOR, "a[rel=next]")
    browser.find_element(By.CSS_SELECTOR, "a[rel=prev]").click()
    assert browser.current_url == pages[1].as_uri()
    browser.find_element(By.CSS_SELECTOR, "a[rel=index]").click()
    assert browser.current_url == (gallery / "index.html").as_uri()


def test_every_link_of_the_gallery_opens_a_file(gallery, browser):  # noqa: F811
    browser.get((gallery / "index.html").as_uri())
    links = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, ".card a")]
    assert len(links) == 3 * 4
    for link in links:
        browser.get(link)
        assert "ERR_FILE_NOT_FOUND" not in browser.page_source


@pytest.mark.parametrize("name", ["light", "dark"])
def test_every_text_of_the_gallery_has_the_contrast_of_wcag(gallery, browser, name):  # noqa: F811
    scheme(browser, name)
    browser.get((gallery / "index.html").as_uri())
    measured = contrasts(browser)
    assert len(measured) > 8
    assert {text: ratio for text, ratio in measured.items() if ratio < 4.5} == {}


def test_a_printed_gallery_has_no_links_and_no_tools_but_the_word_that_is_shown(gallery, browser):  # noqa: F811
    for address, word_printed in (("index.html", False), ("index.html#runs", True)):
        browser.get("about:blank")
        browser.get(f"{gallery.as_uri()}/{address}")
        with paper(browser):
            printed = browser.find_element(By.TAG_NAME, "main").text
            assert "Sort by" not in printed and "html" not in printed
            assert browser.find_element(By.ID, "query").is_displayed() is word_printed
            assert "a dog runs" in printed and "dog.jpg" in printed
            assert browser.find_element(By.TAG_NAME, "img").is_displayed()
