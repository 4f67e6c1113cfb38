"""The page in Chromium from a plain static server: captions, offline, nothing sent, and a sentence for each error."""

from __future__ import annotations

import csv
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import WebDriverWait

from browser_session import run, static_server
from captioner import Captioner
from captioner.web.web_folder import write_web_folder
from captioner.writers.lines import COLUMNS
from tests.overlay.browser import contrasts, phone, requests, scheme
from tests.serve.pictures import png
from tests.serve.test_web_page import (
    assert_panel_names_the_likeliest_words,
    button,
    erased_caption,
    give,
    sentence,
    text_of,
)
from tests.tiny_bundle import write_model
from tests.web.conftest import BLANK

EXAMPLES = Path(__file__).parents[2] / "examples"


def errors(driver: WebDriver) -> list[str]:
    """Errors on the console since the last call. Chromium warns if there is no GPU, which is not our page's doing."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[attr-defined]


def wait(page: WebDriver, condition: Any, seconds: float = 40) -> Any:
    return WebDriverWait(page, seconds, 0.1).until(condition)


def is_ready(page: WebDriver) -> bool:
    """Whether the model is loaded. The page may be loading itself for the second time."""
    script = (
        "return [document.getElementById('error')?.textContent, document.documentElement.classList.contains('ready')]"
    )
    told, ready = page.execute_script(script)
    assert not told, told
    return bool(ready)


def choose(page: WebDriver, *paths: Path) -> None:
    page.find_element(By.ID, "file").send_keys("\n".join(map(str, paths)))


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    with static_server(site) as address:
        yield address


@pytest.fixture
def page(browser: WebDriver, server: str) -> Iterator[WebDriver]:
    browser.get("about:blank")
    errors(browser), requests(browser)
    browser.get(server)
    wait(browser, is_ready)
    yield browser
    assert errors(browser) == []
    assert {url for url in requests(browser) if not url.startswith((server, "blob:", "about:"))} == set()


@pytest.fixture(scope="module")
def default_site(tmp_path_factory: pytest.TempPathFactory, runtime: object) -> Path:
    folder = tmp_path_factory.mktemp("web") / "default"
    write_web_folder("default", folder)
    return folder


@pytest.mark.slow
def test_the_default_model_captions_examples_as_python_does_also_without_a_network(
    browser: WebDriver, default_site: Path
):
    photos = [EXAMPLES / name for name in ("cat.jpg", "horse.jpg", "plane.jpg")]
    captioner = Captioner.load("default")
    errors(browser), requests(browser)
    with ExitStack() as stack:
        address = stack.enter_context(static_server(default_site))
        browser.get(address)
        wait(browser, is_ready, 120)
        about = text_of(browser, "#about")
        assert (
            "Model default" in about and "WebAssembly SIMD" in about and "threads" in about
        )  # the host sends no headers
        for photo in photos:
            expected = captioner(photo, n_best=captioner.defaults.beam)
            choose(browser, photo)
            wait(browser, lambda page, expected=expected: sentence(page) == expected.text, 60)
            assert text_of(browser, "#status") == expected.sentence
            assert text_of(browser, ".cv-confidence") == f"{100 * expected.confidence:.0f}\u00a0% sure"
            listed = [item.text.split("\n")[0] for item in browser.find_elements(By.CSS_SELECTOR, ".cv-others button")]
            assert listed == [expected.text, *(other.text for other in expected.alternatives)]
        assert {url for url in requests(browser) if not url.startswith((address, "blob:", "about:"))} == set()
        stack.close()  # the server is gone
        browser.get(address)
        wait(browser, is_ready, 120)
        choose(browser, photos[0])
        wait(browser, lambda page: sentence(page) == captioner(photos[0]).text, 60)
    assert errors(browser) == []


def test_erasing_a_part_forbidding_a_word_and_options_give_pythons_captions(page: WebDriver, model: Path):
    captioner = Captioner.load(model)
    data = next(png(seed) for seed in range(100) if erased_caption(model, png(seed)) != captioner(png(seed)).text)
    give(page, data)
    wait(page, lambda page: sentence(page) == captioner(data).text)
    button(page, "Erase a part").click()
    stage = page.find_element(By.CSS_SELECTOR, ".cv-stage")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", stage)
    across, down = stage.size["width"] // 4, stage.size["height"] // 4
    ActionChains(page).move_to_element_with_offset(stage, -across, -down).click().perform()
    button(page, "Caption again").click()
    wait(page, lambda page: sentence(page) == erased_caption(model, data))
    button(page, "Back to the whole picture").click()
    word = captioner(data).words[0].text
    page.find_elements(By.CSS_SELECTOR, ".cv-sentence button")[0].click()
    page.execute_script(
        "[...document.querySelectorAll('.cv-facts button')].at(-1).click()"
    )  # caption again without the word
    wait(page, lambda page: sentence(page) == captioner(data, forbidden=[word]).text)
    page.find_element(By.CSS_SELECTOR, "#options summary").click()
    page.find_element(By.NAME, "required").send_keys("mat|sleeps")
    page.find_element(By.NAME, "beam").send_keys("4")
    page.find_element(By.NAME, "style").send_keys("plain")
    page.find_element(By.CSS_SELECTOR, "#options [type=submit]").click()
    expected = captioner(data, required="mat|sleeps", beam=4).text
    wait(page, lambda page: sentence(page) == expected)
    assert text_of(page, "#status") == expected
    field = page.find_element(By.NAME, "required")
    field.clear()
    field.send_keys("zebra", Keys.ENTER)
    wait(
        page, lambda page: "The options don't fit: The model doesn't know the word “zebra”." in text_of(page, "#error")
    )


def test_the_panel_of_a_word_tells_what_else_the_model_could_have_said(page: WebDriver, model: Path):
    give(page, png(3))
    wait(page, sentence)
    assert_panel_names_the_likeliest_words(page, model)


def test_a_batch_becomes_a_table_and_a_broken_file_gives_a_sentence(page: WebDriver, model: Path, tmp_path: Path):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    files = {"1.png": png(1), "broken.png": b"no picture", "2.png": png(2)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    choose(page, *(tmp_path / name for name in files))
    wait(page, lambda page: text_of(page, "#status") == "2 of 3 photos have captions.")
    assert text_of(page, "#error") == "broken.png can't be read as a photo. Choose a JPEG, PNG or WebP file."
    button(page, "Download captions (CSV)").click()
    wait(page, lambda page: (tmp_path / "captions.csv").exists())
    with (tmp_path / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert {row["backend"] for row in rows} == {"web"}
    captions = [Captioner.load(model)(png(seed)) for seed in (1, 2)]
    assert [row["image"] for row in rows] == ["1.png", "2.png"]
    assert [row["sentence"] for row in rows] == [caption.sentence for caption in captions]
    for name in ("score", "log_probability"):
        expected = [getattr(caption, name) for caption in captions]
        assert [float(row[name]) for row in rows] == pytest.approx(expected, abs=1e-4)


def test_once_the_model_is_loaded_only_icons_are_pictures_that_the_host_can_be_asked_for(page: WebDriver):
    script = """const load = (address) => new Promise((resolve) => {
  const picture = new Image();
  picture.onload = picture.onerror = ({ type }) => resolve(type);
  picture.src = address;
});
const blob = await new Promise((resolve) => document.createElement("canvas").toBlob(resolve));
return [await load("captioner.json?photo"), await load("missing.png"), await load("icon-192.png"),
  await load("icon-512.png"), await load(URL.createObjectURL(blob))];"""
    results = run(page, script)
    refusals = [message for message in errors(page) if "Content Security Policy" in message]
    assert results == ["error", "error", "load", "load", "load"] and len(refusals) == 2


def test_once_the_model_is_loaded_the_policy_forbids_every_connection(page: WebDriver, server: str):
    script = """const attempt = (address) => fetch(address).then(() => "sent", (error) => error.name);
const violated = [];
document.addEventListener("securitypolicyviolation", (event) => violated.push(event.effectiveDirective));
const worker = new Worker(URL.createObjectURL(new Blob([
  `fetch(${JSON.stringify(args[0])}).then(() => postMessage("sent"), (error) => postMessage(error.name))`])));
const results = [await attempt(args[0]), await attempt("https://example.org/"),
  await new Promise((resolve) => (worker.onmessage = ({ data }) => resolve(data)))];
return [results, violated];"""
    results, violated = run(page, script, server + "captioner.json")
    errors(page)  # Chromium reports each refusal
    assert results == ["TypeError"] * 3 and set(violated) == {"connect-src"}


@pytest.mark.parametrize("kind", ["drop", "paste", "choose"])
def test_a_photo_given_while_the_page_prepares_its_service_worker_is_not_lost(
    browser: WebDriver, site: Path, model: Path, tmp_path: Path, kind: str
):
    (tmp_path / "photo.png").write_bytes(png(3))
    released = threading.Event()

    def hold(path: str) -> None:
        if path == "/release.js":  # which the service worker needs first
            released.wait(30)

    with static_server(site, before=hold) as address:
        browser.get(address)
        browser.execute_script("window.same = true")
        if kind == "choose":
            choose(browser, tmp_path / "photo.png")
        else:
            give(browser, png(3), kind=kind)
        released.set()
        wait(browser, is_ready)
        wait(browser, lambda page: sentence(page) == Captioner.load(model)(png(3)).text)
        assert browser.execute_script("return window.same"), "the page was loaded again"
        assert text_of(browser, "#about").endswith("Load the page again for more threads.")
        browser.refresh()
        wait(browser, is_ready)
        assert browser.execute_script("return crossOriginIsolated")
        assert "Load the page again" not in text_of(browser, "#about")
        browser.get("about:blank")
    assert errors(browser) == []


def test_the_page_is_not_loaded_again_while_somebody_uses_it(browser: WebDriver, site: Path):
    released = threading.Event()
    with static_server(site, before=lambda path: path == "/release.js" and released.wait(30)) as address:
        browser.get(address)
        browser.execute_script("window.same = true")
        browser.find_element(By.CSS_SELECTOR, "#options summary").click()
        released.set()
        wait(browser, is_ready)
        assert browser.execute_script("return window.same"), "the page was loaded again"
        browser.get("about:blank")
    assert errors(browser) == []


def test_a_damaged_model_is_refused_with_a_sentence(browser: WebDriver, site: Path, tmp_path: Path):
    shutil.copytree(site, tmp_path / "site")
    path = tmp_path / "site" / "model" / "toy" / "decoder.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    refusal = "model/toy/decoder.onnx is damaged or was changed"

    def is_refused(page: WebDriver) -> bool:
        told = page.execute_script("return ['error', 'status'].map((id) => document.getElementById(id)?.textContent)")
        return refusal in (told[0] or "") and not told[1]

    with static_server(tmp_path / "site") as address:
        browser.get(address)
        wait(browser, is_refused)
        browser.execute_script("document.getElementById('error').textContent = ''")
        give(browser, png(1))
        wait(browser, is_refused)
        browser.get("about:blank")
    errors(browser)


def test_a_host_that_changes_a_file_of_the_page_costs_offline_use_only(browser: WebDriver, site: Path, tmp_path: Path):
    shutil.copytree(site, tmp_path / "site")
    with (tmp_path / "site" / "page.css").open("a") as file:
        file.write("/* added by the host */")
    with static_server(tmp_path / "site") as address:
        browser.get(address)
        wait(browser, is_ready)
        about = text_of(browser, "#about")
        assert "one thread" in about and "It needs a network on the next visit too." in about
        browser.get("about:blank")
    errors(browser)


@pytest.mark.parametrize("headers", [{}, {"Cache-Control": "max-age=3600"}], ids=["plain", "caching"])
def test_a_new_version_of_the_folder_replaces_the_old_one(
    browser: WebDriver, site: Path, tmp_path: Path, headers: dict[str, str]
):
    folder = tmp_path / "site"
    shutil.copytree(site, folder)
    with static_server(folder, headers=headers) as address:
        browser.get(address)
        wait(browser, is_ready)
        other = write_model(tmp_path / "other", seed=3).folder
        write_web_folder(other, folder, overwrite=True)
        run(browser, "await (await navigator.serviceWorker.getRegistration()).update();")

        def is_new(page: WebDriver) -> bool:
            page.refresh()
            wait(page, is_ready)
            return "Model other" in text_of(page, "#about")

        wait(browser, is_new)
        give(browser, png(3))
        wait(browser, lambda page: sentence(page) == Captioner.load(other)(png(3)).text)
        addresses = """const caching = await Promise.all((await caches.keys()).map((name) => caches.open(name)));
return (await Promise.all(caching.map((cache) => cache.keys()))).flat().map(({ url }) => url);"""
        kept = [url for url in run(browser, addresses) if url.startswith(address)]
        assert any("model/other" in url for url in kept) and not any("model/toy" in url for url in kept)
        browser.get("about:blank")
    errors(browser)


def test_the_list_of_files_is_never_an_old_one_of_the_browsers_cache(browser: WebDriver, site: Path, tmp_path: Path):
    shutil.copytree(site, tmp_path / "site")
    script = 'return (await (await import("./web_files.js")).readSettings(new URL("./", location.href))).model;'
    caching = {"Cache-Control": "max-age=3600"}
    with static_server(tmp_path / "site", pages=BLANK, headers=caching) as address:
        browser.get(address + "blank.html")
        assert run(browser, script) == "toy"
        path = tmp_path / "site" / "captioner.json"
        path.write_text(path.read_text().replace('"model": "toy"', '"model": "another"'))
        assert run(browser, script) == "another"
        browser.get("about:blank")


def test_kept_files_have_their_types_whatever_the_host_says(page: WebDriver):
    script = """const types = {};
for (const name of await caches.keys()) {
  if (!name.startsWith(`captioner-page ${location.href}`)) continue;
  const cache = await caches.open(name);
  for (const request of await cache.keys()) {
    types[new URL(request.url).pathname.slice(1)] = (await cache.match(request)).headers.get("Content-Type");
  }
}
return types;"""
    types = run(page, script)
    assert types["app.webmanifest"] == "application/manifest+json"  # the server knows no such type
    assert types["runtime/ort.wasm.min.js"] == types["browser_page.js"] == "text/javascript"
    assert types["index.html"] == "text/html" and "application/octet-stream" not in types.values()


def test_memory_stays_flat(page: WebDriver, tmp_path: Path):
    def megabytes() -> float:
        page.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return float(page.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]) / 1e6

    def caption(count: int) -> None:
        choose(page, *paths[:count])
        wait(page, lambda page: text_of(page, "#status") == f"{count} of {count} photos have captions.", 90)
        page.execute_script("document.getElementById('status').textContent = ''")

    paths = [tmp_path / f"{seed}.png" for seed in range(32)]
    for seed, path in enumerate(paths):
        path.write_bytes(png(seed, 400))
    caption(32)  # the history is full
    before = megabytes()
    caption(20)
    assert megabytes() < before + 3
    assert len(page.find_elements(By.CSS_SELECTOR, "#history li")) == 30


def test_texts_of_its_own_have_contrast_and_fit_on_a_phone(page: WebDriver):
    scheme(page, "dark")
    low = {text: round(value, 1) for text, value in contrasts(page).items() if value < 4.5}
    scheme(page, "light")
    assert low == {}
    with phone(page):
        give(page, png(3))
        wait(page, sentence)
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390


def test_the_page_can_be_installed(page: WebDriver):
    wait(page, lambda page: page.execute_cdp_cmd("Page.getAppManifest", {}).get("data"))
    manifest = page.execute_cdp_cmd("Page.getAppManifest", {})
    assert manifest["errors"] == []
    problems = page.execute_cdp_cmd("Page.getInstallabilityErrors", {})["installabilityErrors"]
    assert [problem["errorId"] for problem in problems if problem["errorId"] != "in-incognito"] == []
