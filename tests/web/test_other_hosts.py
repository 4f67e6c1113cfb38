"""The folder from `captioner serve`, and models of the coming kind: 16x16 cells, entmax, hard attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from captioner import Captioner
from captioner.web.web_folder import write_web_folder
from tests.export.network_bundles import write_network_bundle
from tests.model.tiny_models import make_network
from tests.overlay.browser import complaints
from tests.serve.pictures import png
from tests.serve.running import running
from tests.serve.test_web_page import give, sentence
from tests.web.test_browser_page import is_ready, wait
from tests.web.test_captions_in_browser import assert_equal, opened

PYRAMID: dict[str, Any] = {
    "size": 64,
    "annotations": ("stage6", "head"),
    "tail": "stage6",
    "pyramid": {"size": 12, "blocks": 1},
}


def test_captioner_serve_hosts_the_folder_with_a_token_too(browser: WebDriver, site: Path, model: Path, tmp_path: Path):
    (tmp_path / "token").write_text("s3cret")
    with running("--model", str(model), "--web", str(site), "--token-file", str(tmp_path / "token")) as service:
        headers = httpx.get(f"{service.url}/web/").headers
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-embedder-policy"] == "require-corp"
        assert httpx.get(f"{service.url}/web/../v1/models").status_code == 401
        assert httpx.get(f"{service.url}/web/%2e%2e/%2e%2e/token").status_code == 404
        browser.get(service.url + "/")
        browser.find_element(By.LINK_TEXT, "Caption in this browser instead").click()
        wait(browser, is_ready)
        assert browser.execute_script("return crossOriginIsolated")
        give(browser, png(3))
        wait(browser, lambda page: sentence(page) == Captioner.load(model)(png(3)).text)
        browser.get("about:blank")
    complaints(browser)


def test_a_folder_of_something_else_is_not_served(model: Path, tmp_path: Path):
    with running("--model", str(model), "--web", str(tmp_path), ready=False) as service:
        assert service.process.wait(60) == 2
        assert any("not a folder of `captioner web`" in line for line in service.lines)


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_model_with_a_pyramid_and_sparse_attention_runs_in_the_browser(
    browser: WebDriver, runtime: object, tmp_path: Path, mode: str
):
    attention = {"normalizer": "entmax15", "last_word": True, "temperature": 0.5, "mode": mode}
    network = make_network(PYRAMID, annotation_size=None, attention=attention)
    decoding = {"hard_attention": "argmax"} if mode == "hard" else {}
    bundle = write_network_bundle(network, tmp_path, **decoding)
    write_web_folder(bundle.folder, tmp_path / "web")
    captioner = Captioner.load(bundle.folder)
    for in_browser in opened(browser, tmp_path / "web"):
        for seed in range(3):
            expected = captioner(png(seed, 64))
            assert_equal(in_browser(png(seed, 64)), expected)
        assert (captioner.backend.rows, captioner.backend.cols) == (in_browser.model["rows"], in_browser.model["cols"])
        maps = np.stack([word.alpha for word in expected.words])
        assert (maps == 0).any()  # entmax leaves cells out
