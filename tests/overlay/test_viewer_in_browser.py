"""The viewer by itself: its painting is that of Python, and it works outside the page, from separate module files."""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from captioner.caption import Evidence
from captioner.overlay import painting, view_of
from captioner.overlay.colors import COLOR_MAP
from captioner.overlay.contact_sheet import most_visual
from captioner.overlay.painting import Style
from tests.overlay.browser import browser, complaints  # noqa: F401
from tests.overlay.handmade_captions import blob, caption, flat, one_cell


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *arguments):
        pass


@pytest.fixture(scope="module")
def site():
    """The address of a server with the files of the package, as `captioner serve` would offer them."""
    folder = Path(str(resources.files("captioner.overlay")))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run_module(driver: WebDriver, site: str, body: str, *arguments):
    """The value that an async function returns; it may import the modules of the site."""
    driver.get(f"{site}/viewer.css")  # any document of the site
    script = (
        f"const done = arguments[arguments.length - 1]; (async (...given) => {{ {body} }})(...arguments).then(done)"
    )
    return driver.execute_async_script(script, *arguments)


def photo(width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3)).astype(np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


RAMP = (np.arange(12).reshape(3, 4) / 66).astype(np.float32)
MAPS: dict[str, NDArray[np.float32]] = {
    "blob": blob(2, 3, 7, 9),
    "one cell": one_cell(0, 4, 5, 5),
    "even": flat(6, 6),
    "ramp": RAMP,
    "falls and rises": (RAMP - 0.05).astype(np.float32),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("style", [Style("spotlight"), Style("heat"), Style("contour", opacity=0.5), Style("blocks")])
def test_javascript_and_python_paint_the_same_picture(browser, site, name, style):  # noqa: F811
    image, alpha = photo(151, 97), MAPS[name]
    top = 0.7 * float(alpha.max())
    rgba = np.asarray(image.convert("RGBA"))
    painted = run_module(
        browser,
        site,
        """const { paint } = await import("./painting.js"), [pixels, width, height, map, style] = given;
        return [...paint(Uint8ClampedArray.from(pixels), width, height, map, style)];""",
        rgba.ravel().tolist(),
        *image.size,
        {"values": alpha.ravel().tolist(), "rows": alpha.shape[0], "cols": alpha.shape[1], "top": top},
        {"style": style.name, "grid": style.grid, "opacity": style.opacity},
    )
    by_javascript = np.array(painted).reshape(97, 151, 4)[..., :3]
    by_python = np.asarray(painting.paint(image, alpha, top, style)).astype(int)
    # Rounding differs by one level; a line may be shifted by a pixel where a value is exactly at the threshold.
    assert (np.abs(by_javascript - by_python).max(axis=-1) > 1).mean() < 0.002


def test_javascript_and_python_agree_on_concentration_and_colors(browser, site):  # noqa: F811
    maps = [alpha.ravel().tolist() for alpha in MAPS.values()]
    areas, focuses, colors = run_module(
        browser,
        site,
        """const { focus, halfArea, COLOR_MAP } = await import("./painting.js"), maps = given[0];
        return [maps.map(halfArea), maps.map(focus), [...COLOR_MAP]];""",
        maps,
    )
    np.testing.assert_allclose(areas, [painting.half_area(alpha) for alpha in MAPS.values()], atol=1e-6)
    np.testing.assert_allclose(focuses, [painting.focus(alpha) for alpha in MAPS.values()], atol=1e-6)
    assert colors == COLOR_MAP.ravel().tolist()


@pytest.mark.parametrize("source", ["address", "canvas"])
def test_a_viewer_works_in_any_document_with_its_files_beside_it(browser, site, source):  # noqa: F811
    one = caption("a dog runs", size=(120, 80), alternatives=("a cat",))
    buffer = io.BytesIO()
    photo(120, 80).save(buffer, "PNG")
    address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    complaints(browser)
    seen = run_module(
        browser,
        site,
        """const { createViewer } = await import("./viewer.js"), [captions, address, source] = given;
        const root = document.createElement("div"), seen = [];
        document.body.replaceChildren(root);
        let picture = address;
        if (source === "canvas") {
          const image = new Image();
          image.src = address;
          await image.decode();
          picture = document.createElement("canvas");
          picture.width = image.width;
          picture.height = image.height;
          picture.getContext("2d").drawImage(image, 0, 0);
        }
        window.viewer = createViewer(root, { picture, captions: JSON.parse(captions), onselect: (i) => seen.push(i) });
        await viewer.ready;
        viewer.select(2);
        viewer.select(99);
        return [seen, viewer.words.map((word) => word.word), root.querySelector(".cv-stage").className];""",
        json.dumps(view_of(one)),
        address,
        source,
    )
    assert seen == [[2, 2], ["a", "dog", "runs"], "cv-stage cv-mapped"]
    browser.execute_script("viewer.destroy()")
    assert not browser.find_elements(By.CSS_SELECTOR, ".cv-sentence")
    assert [text for text in complaints(browser) if "favicon" not in text] == []


def test_a_part_and_a_word_can_be_erased_where_the_document_can_caption_again(browser, site):  # noqa: F811
    before, after = view_of(caption("a dog runs")), view_of(caption("a cat"))
    run_module(
        browser,
        site,
        """const { createViewer } = await import("./viewer.js"), [captions, again] = given;
        const root = document.createElement("div"), style = document.createElement("link");
        style.rel = "stylesheet"; style.href = "./viewer.css";
        document.head.append(style);
        document.body.replaceChildren(root);
        const picture = document.createElement("canvas");
        window.asked = [];
        const recaption = async (what) => { asked.push(what); return again; };
        window.viewer = createViewer(root, { picture, captions, recaption });
        await viewer.ready;""",
        before,
        after,
    )
    press = "[...document.querySelectorAll('button')].find((b) => b.textContent === arguments[0]).click()"
    browser.execute_script(press, "Erase a part")
    stage = browser.find_element(By.CLASS_NAME, "cv-stage")
    corner = 5 - stage.size["width"] // 2, 5 - stage.size["height"] // 2
    ActionChains(browser).move_to_element_with_offset(stage, *corner).click().perform()
    browser.execute_script(press, "Caption again")
    words = "return viewer.words.map((word) => word.word).join(' ')"
    WebDriverWait(browser, 5).until(lambda d: d.execute_script(words) == "a cat")
    assert browser.execute_script("return asked") == [{"cells": [[0, 0]], "without": []}]
    browser.execute_script(press, "Back to the whole picture")
    assert browser.execute_script(words) == "a dog runs"
    browser.execute_script("viewer.select(1)")
    browser.execute_script(press, "Caption again without “dog”")
    WebDriverWait(browser, 5).until(lambda d: d.execute_script(words) == "a cat")
    assert browser.execute_script("return asked[1]") == {"cells": [], "without": ["dog"]}


def test_late_answers_are_ignored_and_a_failure_takes_the_word_back(browser, site):  # noqa: F811
    views = [view_of(caption(text)) for text in ("a dog runs", "a cat", "a horse")]
    asked, shown = run_module(
        browser,
        site,
        """const { createViewer } = await import("./viewer.js"), [captions, cat, horse] = given;
        const root = document.createElement("div"), asked = [], answers = [], shown = [];
        document.body.replaceChildren(root);
        const recaption = (what) => new Promise((resolve, reject) => {
          asked.push(what.without);
          answers.push({ resolve, reject });
        });
        const viewer = createViewer(root, { picture: document.createElement("canvas"), captions, recaption });
        await viewer.ready;
        const press = (text) => [...root.querySelectorAll("button")].find((b) => b.textContent === text).click();
        const without = (index, word) => { viewer.select(index); press(`Caption again without “${word}”`); };
        const settle = async () => {
          await new Promise((done) => setTimeout(done, 20));
          shown.push(viewer.words.map((word) => word.word).join(" "));
        };
        without(1, "dog");                         // request 1
        press("Back to the whole picture");
        answers[0].resolve(cat);
        await settle();
        without(1, "dog");                         // request 2
        without(2, "runs");                        // request 3
        answers[2].resolve(horse);
        answers[1].resolve(cat);
        await settle();
        press("Back to the whole picture");
        without(1, "dog");                         // request 4
        answers[3].reject(new Error("busy"));
        await settle();
        without(2, "runs");                        // request 5
        return [asked, shown];""",
        *views,
    )
    assert shown == ["a dog runs", "a horse", "a dog runs"]
    assert asked == [["dog"], ["dog"], ["dog", "runs"], ["dog"], ["runs"]]


def test_javascript_and_python_open_with_the_same_word(browser, site):  # noqa: F811
    relied = flat(4, 6)
    for gains in ((5.0, 0.1, 2.0), (0.0, 1.0, 9.0)):
        one = caption("dog runs grass", size=(60, 40))
        words = tuple(
            dataclasses.replace(word, evidence=Evidence(relied, -0.1, -0.1 - gain))
            for word, gain in zip(one.words, gains, strict=True)
        )
        for drawn in (one, dataclasses.replace(one, words=words)):
            scores = run_module(
                browser,
                site,
                'const { visualness } = await import("./viewer.js"); return given[0].map(visualness);',
                view_of(drawn)[0]["words"],
            )
            assert most_visual(drawn.words) is drawn.words[int(np.argmax(scores))]
