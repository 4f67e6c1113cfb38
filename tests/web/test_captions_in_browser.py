"""captioner.js in Chromium against Python: the same captions, maps and confidence for every option of the search."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from browser_session import ISOLATED, run, static_server
from captioner import Captioner
from captioner.caption import Caption
from captioner.evidence.word_evidence import with_alternatives
from captioner.web.web_folder import write_web_folder
from tests.serve.pictures import b64, png
from tests.tiny_bundle import write_model
from tests.web.conftest import BLANK

LOAD = """const { Captioner } = await import("./captioner.js");
window.captioner = await Captioner.load({ webgpu: false });
window.photo = (text) => new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], "photo.png");
return [captioner.model, captioner.engine];"""
CAPTION = """const words = (caption) => caption.words.map((word) => ({ ...word, alpha: [...word.alpha] }));
const plain = (caption) => ({ ...caption, picture: null, words: words(caption) });
const caption = await captioner.caption(photo(args[0]), args[1]);
return { ...plain(caption), alternatives: caption.alternatives.map(plain) };"""


class InBrowser:
    """A captioner in the page."""

    def __init__(self, browser: WebDriver) -> None:
        self.browser = browser
        self.model, self.engine = run(browser, LOAD, seconds=60)

    def __call__(self, data: bytes, **options: Any) -> dict[str, Any]:
        camel = {_camel(name): value for name, value in options.items()}
        caption: dict[str, Any] = run(self.browser, CAPTION, b64(data), camel, seconds=60)
        return caption


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def opened(browser: WebDriver, folder: Path) -> Iterator[InBrowser]:
    with static_server(folder, pages=BLANK, headers=ISOLATED) as address:
        browser.get(address + "blank.html")
        yield InBrowser(browser)
        browser.get("about:blank")


@pytest.fixture(scope="module")
def in_browser(browser: WebDriver, site: Path) -> Iterator[InBrowser]:
    yield from opened(browser, site)


@pytest.fixture(scope="module")
def in_python(model: Path) -> Captioner:
    return Captioner.load(model)


def assert_equal(found: dict[str, Any], expected: Caption) -> None:
    for one, other in zip([found, *found["alternatives"]], [expected, *expected.alternatives], strict=True):
        assert one["text"] == other.text and one["sentence"] == other.sentence
        assert one["score"] == pytest.approx(other.score, abs=1e-4)
        assert one["logProbability"] == pytest.approx(other.log_probability, abs=1e-4)
        assert (one["end"] is None) == (other.end is None)
        assert one["confidence"] == (None if other.confidence is None else pytest.approx(other.confidence, abs=1e-4))
        for word, same in zip(one["words"], other.words, strict=True):
            assert word["logProbability"] == pytest.approx(same.log_probability, abs=1e-4)
            assert word["gate"] == pytest.approx(same.gate, abs=1e-4)
            assert np.abs(np.array(word["alpha"]) - same.alpha.ravel()).max() < 1e-4
            assert word["cell"] == (None if same.cell is None else list(same.cell))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 1},
    {"beam": 5},
    {"min_length": 3, "max_length": 5, "n_best": 2},
    {"forbidden": ["a", "Dog", "zebra"], "n_best": 2},
    {"repeat_penalty": 1.5, "n_best": 3, "beam": 4},
    {"required": ["cat|dog", "mat"], "beam": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_captions_and_their_numbers_are_pythons(in_browser: InBrowser, in_python: Captioner, options: Any):
    compared = 0
    for seed in range(20):
        expected = in_python(png(seed), **options)
        scores = np.array([expected.score, *(other.score for other in expected.alternatives)])
        if compared < 3 and np.all(scores[:-1] - scores[1:] > 1e-3):  # else rounding decides the order
            assert_equal(in_browser(png(seed), **options), expected)
            compared += 1
    assert compared == 3


def test_the_likeliest_words_are_pythons_and_only_there_if_asked_for(in_browser: InBrowser, in_python: Captioner):
    options: dict[str, Any] = {"forbidden": ["the"], "n_best": 2}
    caption = with_alternatives(
        in_python, in_python(png(4), keep_pictures=True, **options), in_python.options(**options)
    )
    found = in_browser(png(4), word_alternatives=True, **options)
    for one, expected in zip([found, *found["alternatives"]], [caption, *caption.alternatives], strict=True):
        for word, same in zip(one["words"], expected.words, strict=True):
            assert [text for text, _ in word["alternatives"]] == [text for text, _ in same.alternatives]
            chances = [p for _, p in same.alternatives]
            assert [p for _, p in word["alternatives"]] == pytest.approx(chances, abs=1e-5)
    assert not any("alternatives" in word for word in in_browser(png(4), **options)["words"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bean": 3}, "There is no search option bean"),
        ({"beam": 0}, "beam 0 is too small"),
        ({"beam": 1.5}, "beam must be a whole number"),
        ({"beam": 2, "n_best": 3}, "nBest 3 needs a beam of 3 or more, not 2"),
        ({"min_length": 9}, "No caption has at least 9 and at most 7 words"),
        ({"sample": True}, "sample is not available in the browser"),
        ({"required": ["zebra"]}, "The model doesn't know the word “zebra”"),
        ({"required": ["cat"], "forbidden": ["cat"]}, "cat is both required and forbidden"),
        ({"required": ["cat", "dog"], "max_length": 1}, "2 required words do not fit into 1 words"),
        ({"hard_attention": "sampled"}, "hardAttention must be expected or argmax"),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(in_browser: InBrowser, options: dict[str, Any], sentence: str):
    with pytest.raises(RuntimeError, match=sentence):
        in_browser(png(1), **options)


def test_many_pictures_are_captioned_in_order_and_a_broken_one_does_not_stop_them(in_browser: InBrowser, model: Path):
    script = """const results = [];
for await (const { caption, error } of captioner.captions(args[0].map(photo))) {
  results.push(caption?.text ?? error.kind);
}
return results;"""
    found = run(in_browser.browser, script, [b64(png(1)), b64(b"broken"), b64(png(2))])
    captioner = Captioner.load(model)
    assert found == [captioner(png(1)).text, "picture", captioner(png(2)).text]


def test_a_page_that_is_isolated_has_threads_and_a_captioner_can_be_closed(in_browser: InBrowser):
    cores = in_browser.browser.execute_script("return navigator.hardwareConcurrency")
    assert in_browser.engine == {"webgpu": False, "threads": min(cores, 8)}
    script = """const { Captioner } = await import("./captioner.js");
const other = await Captioner.load({ webgpu: false, threads: 1 }), pending = other.caption(photo(args[0]));
other.close();
const late = other.caption(photo(args[0]));
return [other.engine.threads, ...(await Promise.allSettled([pending, late])).map(({ reason }) => reason.message)];"""
    assert run(in_browser.browser, script, b64(png(1))) == [1, *["The captioner is closed."] * 2]


WASM, WEBGPU = "runtime/ort-wasm-simd-threaded.wasm", "runtime/ort-wasm-simd-threaded.jspi.wasm"


@pytest.mark.parametrize("has_webgpu", [True, False])
def test_a_runtime_that_is_not_there_is_replaced_by_the_other_one(
    browser: WebDriver, site: Path, model: Path, tmp_path: Path, has_webgpu: bool
):
    shutil.copytree(site, tmp_path / "site")
    kept, missing = (WASM, WEBGPU) if has_webgpu else (WEBGPU, WASM)
    (tmp_path / "site" / missing).unlink()  # as without a network, when only the other one was loaded before
    gpu = """Object.defineProperty(navigator, "gpu", {
  configurable: true, value: args[0] ? { requestAdapter: async () => ({ info: {} }) } : undefined });
const captioner = await (await import("./captioner.js")).Captioner.load();
const photo = new File([Uint8Array.from(atob(args[1]), (c) => c.charCodeAt(0))], "photo.png");
return [captioner.engine.webgpu, (await captioner.caption(photo)).text];"""
    with static_server(tmp_path / "site", pages=BLANK) as address:
        browser.get(address + "blank.html")
        assert run(browser, gpu, has_webgpu, b64(png(3)), seconds=60) == [False, Captioner.load(model)(png(3)).text]
        browser.execute_script("caches.keys().then((names) => names.forEach((name) => caches.delete(name)))")
        (tmp_path / "site" / kept).unlink()
        with pytest.raises(RuntimeError, match=WASM + r" can't be loaded \(404\)"):
            run(browser, gpu, has_webgpu, b64(png(3)), seconds=60)
        browser.get("about:blank")


@pytest.mark.parametrize("hard_attention", ["argmax", "expected"])
def test_a_hard_model_attends_as_its_manifest_says(
    browser: WebDriver, runtime: object, tmp_path: Path, hard_attention: str
):
    model = write_model(tmp_path / "hard", hard=True).folder
    manifest = json.loads((model / "manifest.json").read_text())
    manifest["decoding"]["hard_attention"] = hard_attention
    (model / "manifest.json").write_text(json.dumps(manifest))
    write_web_folder(model, tmp_path / "web")
    for in_browser in opened(browser, tmp_path / "web"):
        assert in_browser.model["attention"] == "hard"
        for seed in range(4):
            assert_equal(in_browser(png(seed)), Captioner.load(model)(png(seed)))
