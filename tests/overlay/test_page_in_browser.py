"""The page in a real browser: pointer, touch and keyboard work, and nothing is requested."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select, WebDriverWait

from captioner.caption import Caption, Curves, Evidence
from captioner.overlay import Style, page, page_of
from captioner.overlay.page import Links
from tests.overlay.browser import browser, complaints, contrasts, paper, requests, scheme  # noqa: F401
from tests.overlay.handmade_captions import caption, one_cell

TEXT = "a dog runs on the grass"


@pytest.fixture
def opened(browser: WebDriver, tmp_path: Path):  # noqa: F811
    """Opens a page. The test fails if the page writes to the console or requests anything."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    complaints(browser), requests(browser)
    address = (tmp_path / "page.html").as_uri()

    def open_(document: str) -> WebDriver:
        (tmp_path / "page.html").write_text(document, encoding="utf-8")
        browser.get(address)
        WebDriverWait(browser, 10).until(lambda d: d.find_elements(By.CSS_SELECTOR, "html.ready"))
        return browser

    yield open_
    assert complaints(browser) == []
    assert set(requests(browser)) <= {address}


def example(**options) -> Caption:
    return caption(TEXT, size=(600, 400), **options)


HEAT = Style("heat")  # its brightest pixel is at the highest value; a spotlight has white lines
AWAY = (By.CLASS_NAME, "about")  # an element that shows nothing when the pointer is over it


def words(driver: WebDriver, track: int = 0):
    return driver.find_elements(By.CSS_SELECTOR, f"#viewer-{track} .cv-sentence button")


def pressed(driver: WebDriver, track: int = 0) -> str | None:
    lit = [
        w.find_element(By.CLASS_NAME, "cv-word").text
        for w in words(driver, track)
        if w.get_attribute("aria-pressed") == "true"
    ]
    return lit[0] if lit else None


def brightest(driver: WebDriver, track: int = 0) -> tuple[float, float] | None:
    """The brightest point of the map, x and y relative to the size of the picture; None without a map."""
    return driver.execute_script(
        """
        const stage = document.querySelector(`#viewer-${arguments[0]} .cv-stage`);
        const canvas = stage.querySelector("canvas");
        if (!stage.classList.contains("cv-mapped")) return null;
        const {width, height} = canvas, {data} = canvas.getContext("2d").getImageData(0, 0, width, height);
        let best = -1, at = 0;
        for (let i = 0; i < data.length; i += 4) {
          const light = data[i] + data[i + 1] + data[i + 2];
          if (light > best) { best = light; at = i / 4; }
        }
        return [(at % width) / width, Math.floor(at / width) / height];
        """,
        track,
    )


def in_cell(point, row: int, col: int, rows: int = 4, cols: int = 6) -> bool:
    return col / cols <= point[0] <= (col + 1) / cols and row / rows <= point[1] <= (row + 1) / rows


def move_away(driver: WebDriver) -> None:
    ActionChains(driver).move_to_element(driver.find_element(*AWAY)).perform()


def test_the_page_opens_with_the_map_of_the_most_visual_word_and_a_guide(opened):
    one = example()
    sharp = dataclasses.replace(one.words[5], alpha=one_cell(2, 3, 4, 6), gate=0.9)  # grass
    driver = opened(page(dataclasses.replace(one, words=(*one.words[:5], sharp)), HEAT))
    assert pressed(driver) == "grass" and in_cell(brightest(driver), 2, 3)
    guide = driver.find_element(By.CLASS_NAME, "cv-guide")
    assert "arrow keys" in guide.text and guide.rect["y"] < 300


def test_hovering_a_word_shows_its_map_and_leaving_returns_to_the_selected_word(opened):
    driver = opened(page(example(), HEAT))
    at_first = pressed(driver)
    for number in (0, 2, 4):
        ActionChains(driver).move_to_element(words(driver)[number]).perform()
        assert in_cell(brightest(driver), 0, number)
    move_away(driver)
    assert pressed(driver) == at_first


def test_a_click_keeps_the_map_and_shows_the_values_of_the_word(opened):
    driver = opened(page(example(), HEAT))
    words(driver)[1].click()
    move_away(driver)
    assert in_cell(brightest(driver), 0, 1)
    facts = driver.find_element(By.CLASS_NAME, "cv-facts").text
    assert facts.startswith("dog upper left\nProbability\n0.85")
    assert "Gate\n0.35" in facts


def test_a_figure_is_explained_in_a_sentence(opened):
    driver = opened(page(example()))
    label = driver.find_element(By.CLASS_NAME, "cv-why")
    assert "How likely" in label.get_attribute("title")
    label.click()
    assert "How likely" in driver.find_element(By.CLASS_NAME, "cv-facts").text


def test_a_tap_shows_the_map(opened):
    driver = opened(page(example(), HEAT))
    box = words(driver)[3].rect
    finger = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [finger]})
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    WebDriverWait(driver, 5).until(lambda d: pressed(d) == "on")
    assert in_cell(brightest(driver), 0, 3)


def test_arrow_keys_home_end_and_escape_move_through_the_sentence(opened):
    driver = opened(page(example()))
    body = driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.ESCAPE)
    seen = []
    for key in (
        Keys.ARROW_RIGHT,
        Keys.ARROW_RIGHT,
        Keys.ARROW_LEFT,
        Keys.END,
        Keys.ARROW_RIGHT,
        Keys.HOME,
        Keys.ESCAPE,
    ):
        body.send_keys(key)
        seen.append(pressed(driver))
    assert seen == ["a", "dog", "a", "grass", "grass", "a", None]


def test_tab_reaches_the_sentence_and_arrows_move_the_focus_through_it(opened):
    driver = opened(page(example()))
    words(driver)[0].click()
    ActionChains(driver).send_keys(Keys.ARROW_RIGHT).perform()
    assert driver.switch_to.active_element.text.startswith("dog")
    assert pressed(driver) == "dog"
    # The sentence is one tab stop: the next tab leaves it, and the way back returns to the selected word.
    ActionChains(driver).send_keys(Keys.TAB).perform()
    assert "cv-stage" in driver.switch_to.active_element.get_attribute("class")
    ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
    assert driver.switch_to.active_element.text.startswith("dog")


def test_a_link_can_point_to_a_word(opened):
    driver = opened(page(example()))
    driver.get(driver.current_url + "#3")
    WebDriverWait(driver, 5).until(lambda d: pressed(d) == "runs")
    driver.refresh()
    WebDriverWait(driver, 5).until(lambda d: pressed(d) == "runs")


def test_play_goes_through_the_sentence_and_pause_stops_it(opened):
    driver = opened(page(example()))
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.HOME)
    play = driver.find_element(By.CLASS_NAME, "cv-play")
    play.click()
    first = pressed(driver)
    assert first is not None and "Pause" in play.text
    WebDriverWait(driver, 5, 0.05).until(lambda d: pressed(d) != first)
    play.click()
    stopped = pressed(driver)
    assert "Play" in play.text and stopped not in (first, "grass")
    time.sleep(1.2)
    assert pressed(driver) == stopped
    play.click()
    WebDriverWait(driver, 15, 0.05).until(lambda d: "Play" in play.text)
    assert pressed(driver) == "grass"


def test_pointing_at_a_cell_highlights_the_words_that_attend_to_it(opened):
    driver = opened(page(example()))
    stage = driver.find_element(By.CLASS_NAME, "cv-stage")
    size = stage.size
    # The third cell of the first row has most attention for "runs", and some for its neighbours.
    x, y = (2.5 / 6 - 0.5) * size["width"], (0.5 / 4 - 0.5) * size["height"]
    ActionChains(driver).move_to_element_with_offset(stage, round(x), round(y)).perform()
    lit = [word.text for word in driver.find_elements(By.CSS_SELECTOR, ".cv-lit .cv-word")]
    assert "runs" in lit and "grass" not in lit
    assert driver.find_element(By.CLASS_NAME, "cv-guide").text.startswith("Looked here for: runs")
    move_away(driver)
    assert not driver.find_elements(By.CSS_SELECTOR, ".cv-lit")


def test_the_picture_can_be_explored_by_keyboard(opened):
    driver = opened(page(example()))
    stage = driver.find_element(By.CLASS_NAME, "cv-stage")
    stage.send_keys(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_LEFT)
    live = driver.find_element(By.CSS_SELECTOR, "[aria-live]").get_attribute("textContent")
    assert "row 1, column 3" in live and "Looked here for: runs" in live


def test_choosing_another_caption_shows_its_words_and_maps(opened):
    driver = opened(page(example(alternatives=("two cats", "a horse")), HEAT))
    others = driver.find_elements(By.CSS_SELECTOR, ".cv-others button")
    assert [button.text.split("\n")[0] for button in others] == [TEXT, "two cats", "a horse"]
    others[1].click()
    assert [word.text for word in words(driver)] == ["two", "cats"]
    words(driver)[1].click()
    assert in_cell(brightest(driver), 0, 1)


def test_style_grid_strength_and_scale_change_the_drawing(opened):
    driver = opened(page(example()))
    words(driver)[1].click()
    shot = "return document.querySelector('canvas').toDataURL()"
    seen = {driver.execute_script(shot)}
    style = Select(driver.find_element(By.CSS_SELECTOR, ".cv-style select"))
    for name in ("heat", "contour", "blocks", "spotlight"):
        style.select_by_value(name)
        seen.add(driver.execute_script(shot))
    assert len(seen) == 4
    driver.find_element(By.CSS_SELECTOR, ".cv-settings summary").click()
    strength, grid, own = driver.find_elements(By.CSS_SELECTOR, ".cv-settings input")
    grid.click()
    assert driver.execute_script(shot) in seen  # the grid of a spotlight is "blocks"
    strength.send_keys(Keys.ARROW_LEFT * 20)
    assert driver.execute_script(shot) not in seen
    assert pressed(driver) == "dog"  # arrow keys on the slider do not change the word
    assert "even" in driver.find_element(By.CLASS_NAME, "cv-ticks").text
    own.click()
    assert "word's highest" in driver.find_element(By.CLASS_NAME, "cv-ticks").text


def test_the_cell_of_a_hard_model_is_outlined(opened):
    driver = opened(page(example(hard=True)))
    words(driver)[4].click()
    stage, mark = (driver.find_element(By.CLASS_NAME, name).rect for name in ("cv-stage", "cv-cell"))
    assert mark["x"] - stage["x"] == pytest.approx(4 * stage["width"] / 6, abs=1)
    assert mark["y"] - stage["y"] == pytest.approx(0, abs=1)
    assert mark["width"] == pytest.approx(stage["width"] / 6, abs=1)


def test_models_side_by_side_show_shared_words_together(opened):
    one = example()
    two = dataclasses.replace(caption("a big dog runs", size=(600, 400), grid=(8, 8)), picture=one.picture)
    driver = opened(page_of([("soft", one), ("hard", two)], HEAT))
    ActionChains(driver).move_to_element(words(driver, 0)[1]).perform()
    assert (pressed(driver, 0), pressed(driver, 1)) == ("dog", "dog")
    assert in_cell(brightest(driver, 0), 0, 1) and in_cell(brightest(driver, 1), 0, 2, 8, 8)
    words(driver, 1)[1].click()
    assert (pressed(driver, 0), pressed(driver, 1)) == (None, "big")


def test_another_caption_of_a_model_is_not_lit_by_the_words_of_the_first(opened):
    one = example()
    two = caption("a big dog runs", size=(600, 400), alternatives=("three white cats on grass",))
    driver = opened(page_of([("soft", one), ("hard", dataclasses.replace(two, picture=one.picture))], HEAT))
    driver.find_elements(By.CSS_SELECTOR, "#viewer-1 .cv-others button")[1].click()
    shown = pressed(driver, 1)
    words(driver, 0)[1].click()  # "dog" is the third word of the caption that is not shown any more
    assert (pressed(driver, 0), pressed(driver, 1)) == ("dog", shown)
    words(driver, 1)[0].click()
    assert (pressed(driver, 0), pressed(driver, 1)) == ("dog", "three")


def with_evidence() -> Caption:
    """The second word was seen in the last cell; the third comes from habit."""
    one = example()
    relied = np.zeros((4, 6), np.float32)
    relied[3, 5] = 2.5
    curve = np.linspace(1, 0, 9, dtype=np.float32)
    curves = Curves(np.linspace(0, 1, 9), curve, curve[::-1], curve, curve[::-1])
    dog = dataclasses.replace(
        one.words[1], alternatives=(("dog", 0.85), ("cat", 0.1)), evidence=Evidence(relied, -0.16, -6.0, 0.25, curves)
    )
    runs = dataclasses.replace(one.words[2], evidence=Evidence(0.01 * relied, -0.2, -0.25, None))
    return dataclasses.replace(one, words=(one.words[0], dog, runs, *one.words[3:]))


def test_looked_at_and_relied_on_can_be_switched_and_shown_side_by_side(opened):
    driver = opened(page(with_evidence(), HEAT))
    assert pressed(driver) == "dog"  # the most visual word
    _, relied, both = driver.find_elements(By.CSS_SELECTOR, ".cv-layers button")
    assert in_cell(brightest(driver), 0, 1)
    relied.click()
    assert in_cell(brightest(driver), 3, 5)
    assert "less likely" in driver.find_element(By.CLASS_NAME, "cv-ticks").text
    both.click()
    figures = [f for f in driver.find_elements(By.CSS_SELECTOR, ".cv-stages figure") if f.is_displayed()]
    assert [figure.text for figure in figures] == ["looked at", "relied on"]
    words(driver)[0].click()
    assert "not measured" in driver.find_element(By.CLASS_NAME, "cv-stages").text


def test_the_facts_tell_what_came_from_the_picture_and_mark_habit(opened):
    driver = opened(page(with_evidence()))
    facts = driver.find_element(By.CLASS_NAME, "cv-facts").text
    assert "From the picture\n× 344" in facts and "0.25" in facts and "cat\n0.10" in facts
    assert len(driver.find_elements(By.CSS_SELECTOR, ".cv-curves polyline")) == 4
    assert [w.text for w in driver.find_elements(By.CSS_SELECTOR, ".cv-from-habit .cv-word")] == ["runs"]
    words(driver)[2].click()
    assert "comes from habit" in driver.find_element(By.CLASS_NAME, "cv-facts").text


def test_without_evidence_nothing_is_said_about_it(opened):
    driver = opened(page(example()))
    assert not driver.find_element(By.CLASS_NAME, "cv-layers").is_displayed()
    assert "habit" not in driver.find_element(By.TAG_NAME, "main").text


@pytest.mark.parametrize("name", ["light", "dark"])
def test_every_text_has_the_contrast_of_wcag(opened, browser, name):  # noqa: F811
    scheme(browser, name)
    driver = opened(page(dataclasses.replace(with_evidence(), confidence=0.7, alternatives=(caption("two cats"),))))
    for summary in driver.find_elements(By.TAG_NAME, "summary"):
        summary.click()
    words(driver)[2].click()
    stage = driver.find_element(By.CLASS_NAME, "cv-stage")
    corner = round(-0.45 * stage.size["width"]), round(-0.45 * stage.size["height"])
    ActionChains(driver).move_to_element_with_offset(stage, *corner).perform()  # highlights some words
    assert driver.find_elements(By.CSS_SELECTOR, ".cv-lit")
    measured = contrasts(driver)
    assert len(measured) > 20
    assert {text: ratio for text, ratio in measured.items() if ratio < 4.5} == {}


def test_every_control_has_a_name_and_is_large_enough(opened):
    driver = opened(page(example(alternatives=("two cats",))))
    controls = driver.find_elements(By.CSS_SELECTOR, "button, input, select, [tabindex='0'], img, summary")
    assert len(controls) > 10
    for control in controls:
        if not control.is_displayed():
            continue
        assert control.accessible_name, control.get_attribute("outerHTML")[:80]
        if control.tag_name == "button":
            assert min(control.size["width"], control.size["height"]) >= 24


def test_reduced_motion_means_no_fading_and_slower_playing(opened, browser):  # noqa: F811
    feature = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    driver = opened(page(example()))
    assert driver.find_element(By.TAG_NAME, "canvas").value_of_css_property("transition-duration") in ("0s", "")
    driver.execute_script("window.setInterval = (step, pause) => { window.pause = pause; return 1; }")
    driver.find_element(By.CLASS_NAME, "cv-play").click()
    assert driver.execute_script("return window.pause") > 1500


def test_a_malicious_name_runs_no_script(opened):
    evil = '</script><script>document.title="run"</script><img src=x onerror=\'document.title="run"\'>'
    driver = opened(page(caption("a " + evil.replace(" ", "_"), name=evil, alternatives=(evil,))))
    words(driver)[1].click()
    assert driver.title != "run"


def test_a_narrow_screen_needs_no_horizontal_scrolling(opened, browser):  # noqa: F811
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        driver = opened(page(example(alternatives=("two cats",))))
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_printed_page_shows_picture_and_sentence_and_no_hint_or_control(opened, browser):  # noqa: F811
    driver = opened(page_of([("", with_evidence())], links=Links("index.html", "cat.html")))
    with paper(driver):
        printed = driver.find_element(By.TAG_NAME, "main").text
        for useless in ("Point at", "arrow keys", "all pictures", "previous", "Play", "Settings", "as a table"):
            assert useless not in printed
        for useful in ("dog.jpg", "white line encloses", "From the picture"):
            assert useful in printed
        assert [word.is_displayed() for word in words(driver)] == [True] * 6
        for shown in (".cv-stage img", ".cv-stage canvas"):
            box = driver.find_element(By.CSS_SELECTOR, shown)
            assert box.is_displayed() and box.size["width"] > 300
    assert "Point at the picture" in driver.find_element(By.CLASS_NAME, "about").text  # back on the screen


def test_a_caption_without_words_opens(opened):
    driver = opened(page(caption("")))
    driver.find_element(By.CLASS_NAME, "cv-play").click()
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
    assert words(driver) == []
