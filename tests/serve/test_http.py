"""The service over HTTP: pictures in, captions out, and a sentence for everything that goes wrong."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from captioner.bundle.layout import CONFIDENCE
from captioner.bundle.writing import add_file
from captioner.evidence.word_evidence import with_alternatives
from tests.inference.test_confidence import handmade
from tests.serve.pictures import b64, png
from tests.serve.running import ROOT, Running, running
from tests.tiny_bundle import write_model

AUDIT = """
import sys
log = open({log!r}, "w")
print("started", file=log, flush=True)
def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.gethostbyname") or (
        event == "open" and isinstance(arguments[1], str) and set("wax+") & set(arguments[1])
    ):
        print(event, arguments, file=log, flush=True)
sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Running]:
    with running("--model", str(model), "--max-body", "1", "--max-pictures", "4") as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Running) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def expected(model: Path) -> list[str]:
    """What the library says about the same pictures."""
    captioner = Captioner.load(model)
    return [captioner(Image.open(io.BytesIO(png(seed)))).text for seed in range(4)]


def test_a_form_a_raw_body_and_json_give_the_library_s_caption(client: httpx.Client, expected: list[str]) -> None:
    answers = [
        client.post("/v1/caption", files={"file": ("a.png", png())}),
        client.post("/v1/caption", content=png(), headers={"Content-Type": "image/png"}),
        client.post("/v1/caption", content=png(), headers={"Content-Type": "application/x-www-form-urlencoded"}),
        client.post("/v1/caption", json={"images": [b64(png())]}),
        client.post("/v1/caption", json={"image": f"data:image/png;base64,{b64(png())}"}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert [answer.json()["results"][0]["caption"] for answer in answers] == [expected[0]] * 5
    assert answers[0].json()["results"][0]["image"] == "a.png"
    assert answers[0].json()["model"] == "toy"


def test_several_pictures_are_answered_in_order_and_a_broken_one_has_an_error(
    client: httpx.Client, expected: list[str]
) -> None:
    files = [("file", (f"{i}.png", png(i) if i != 2 else b"not a picture")) for i in range(4)]
    results = client.post("/v1/caption", files=files).json()["results"]
    assert [result["image"] for result in results] == [f"{i}.png" for i in range(4)]
    assert [result.get("caption") for result in results] == [expected[0], expected[1], None, expected[3]]
    assert "not a picture" in results[2]["error"]


def test_options_words_and_maps_are_honoured(client: httpx.Client) -> None:
    answer = client.post("/v1/caption?beam=4&n_best=3&maps=true&forbidden=cat,dog", files={"file": png()}).json()
    (result,) = answer["results"]
    assert len(result["alternatives"]) == 2
    assert not {"cat", "dog"} & set(result["caption"].split())
    assert [word["text"] for word in result["words"]] == result["caption"].split()
    for word in result["words"]:
        assert np.sum(word["alpha"]) == pytest.approx(1, abs=1e-3)
    required = client.post("/v1/caption", json={"images": [b64(png())], "required": ["mat|sleeps"]}).json()
    assert {"mat", "sleeps"} & set(required["results"][0]["caption"].split())


def words_with_alternatives(model: Path, seed: int, **options: Any) -> list[list[tuple[tuple[str, float], ...]]]:
    """What else the library says that the model could have said, for each caption of the n-best list."""
    captioner = Captioner.load(model)
    caption = captioner(png(seed), keep_pictures=True, **options)
    named = with_alternatives(captioner, caption, captioner.options(**options))
    return [[word.alternatives for word in one.words] for one in (named, *named.alternatives)]


def assert_same_words(found: list[dict[str, Any]], expected: list[tuple[tuple[str, float], ...]]) -> None:
    assert [[text for text, _ in word["alternatives"]] for word in found] == [[t for t, _ in each] for each in expected]
    chances = [[p for _, p in word["alternatives"]] for word in found]
    assert np.array(chances) == pytest.approx(np.array([[p for _, p in each] for each in expected]), abs=1e-5)


def test_each_word_has_the_likeliest_words_of_the_library_if_they_are_asked_for(
    client: httpx.Client, model: Path
) -> None:
    files = [("file", (f"{i}.png", png(i) if i != 1 else b"not a picture")) for i in range(3)]
    results = client.post("/v1/caption?word_alternatives=true&n_best=2", files=files).json()["results"]
    for seed in (0, 2):
        expected = words_with_alternatives(model, seed, n_best=2)
        for found, words in zip([results[seed], *results[seed]["alternatives"]], expected, strict=True):
            assert_same_words(found["words"], words)
            assert "alternatives" not in (found["end"] or {})
    assert "error" in results[1]
    plain = client.post("/v1/caption?words=true", files={"file": png()}).json()["results"][0]
    assert not any("alternatives" in word for word in plain["words"])


def test_a_page_and_its_data_have_the_likeliest_words_and_a_sheet_does_not_compute_them(
    client: httpx.Client, model: Path
) -> None:
    expected = words_with_alternatives(model, 3, n_best=2)
    page = client.post("/v1/overlay?format=html", files={"file": png(3)}).text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    answer = client.post("/v1/overlay?format=json", files={"file": png(3)}).json()
    for captions in (data["tracks"][0], answer["captions"]):
        for found, words in zip(captions, expected, strict=True):
            assert_same_words(found["words"], words)
    without = client.post("/v1/overlay?format=json&word_alternatives=false", files={"file": png(3)}).json()
    assert not any("alternatives" in word for caption in without["captions"] for word in caption["words"])


def test_the_likeliest_words_are_those_of_the_picture_without_the_erased_cells(
    client: httpx.Client, model: Path
) -> None:
    captioner = Captioner.load(model)
    pixels = np.asarray(Image.open(io.BytesIO(png(3)))).copy()
    half = len(pixels) // 2
    pixels[half:, :half] = np.rint(pixels.reshape(-1, 3).mean(0))
    expected = with_alternatives(captioner, captioner(pixels, keep_pictures=True))
    answer = client.post("/v1/caption?erase=1:0&word_alternatives=true", files={"file": png(3)}).json()
    assert_same_words(answer["results"][0]["words"], [word.alternatives for word in expected.words])


@pytest.mark.parametrize(
    ("status", "request_options", "sentence"),
    [
        (422, {"json": {"images": [b64(b"no picture")]}}, "not a picture"),
        (422, {"json": {"images": []}}, "no picture"),
        (422, {"json": {"images": ["http://127.0.0.1:1/a.jpg"]}}, "does not fetch"),
        (422, {"json": {"images": ["%%%"]}}, "base64"),
        (422, {"json": {"images": 3}}, "list"),
        (422, {"json": {"images": [b64(png())], "beem": 3}}, "Did you mean 'beam'"),
        (422, {"json": {"images": [b64(png())], "beam": "x"}}, "whole number"),
        (422, {"json": {"images": [b64(png())], "beam": True}}, "whole number"),
        (422, {"json": {"images": [b64(png())], "beam": 1000}}, "allows 20"),
        (422, {"json": {"images": [b64(png())], "beam": 0}}, "beam"),
        (422, {"json": {"images": [b64(png())], "n_best": 3, "beam": 2}}, "beam"),
        (422, {"json": {"images": [b64(png())], "required": ["zebra"]}}, "zebra"),
        (422, {"json": {"images": [b64(png())], "style": "poem"}}, "style"),
        (422, {"json": {"images": [b64(png())], "length_power": "nan"}}, "number"),
        (422, {"json": {"images": [b64(png())], "erase": ["0:0"] * 5}}, "the grid has 4"),
        (422, {"json": {"images": [b64(png())], "style": ["x" * 10_000]}}, "style must be text"),
        (422, {"json": {"images": [b64(png())], "hard_attention": "x" * 10_000}}, "unknown hard_attention"),
        (404, {"json": {"images": [b64(png())], "model": "other"}}, "unknown model"),
        (413, {"json": {"images": [b64(png())] * 5}}, "allows 4"),
        (413, {"content": b"x" * 1_000_001, "headers": {"Content-Type": "image/png"}}, "larger than the limit"),
        (400, {"content": b"{", "headers": {"Content-Type": "application/json"}}, "JSON"),
        (400, {"content": b"[1]", "headers": {"Content-Type": "application/json"}}, "object"),
        (400, {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "form"),
        (415, {"content": b"x", "headers": {"Content-Type": "text/html"}}, "multipart"),
    ],
)
def test_a_bad_request_gets_a_problem_with_a_sentence(
    client: httpx.Client, status: int, request_options: dict[str, Any], sentence: str
) -> None:
    answer = client.post("/v1/caption", **request_options)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    body = answer.json()
    assert body["status"] == status and body["title"]
    assert sentence in body["detail"] and len(body["detail"]) < 1000


def test_a_body_without_a_length_is_bounded_too(client: httpx.Client) -> None:
    chunks = (b"x" * 100_000 for _ in range(20))
    answer = client.post("/v1/caption", content=chunks, headers={"Content-Type": "image/png"})
    assert answer.status_code == 413 and "larger than the limit" in answer.json()["detail"]


def test_unknown_paths_and_methods_get_problems(client: httpx.Client) -> None:
    assert client.get("/nothing").json()["status"] == 404
    assert client.get("/v1/caption").json()["status"] == 405


def test_the_overlay_is_a_png_or_a_page(client: httpx.Client) -> None:
    sheet = client.post("/v1/overlay", files={"file": png()})
    assert sheet.headers["content-type"] == "image/png" and Image.open(io.BytesIO(sheet.content)).size[0] > 100
    page = client.post("/v1/overlay?format=html", files={"file": ("a.png", png())})
    assert page.status_code == 200 and page.text.startswith("<!DOCTYPE html>")
    assert client.post("/v1/overlay?format=gif", files={"file": png()}).status_code == 422


def test_the_data_of_the_viewer_has_the_alternatives_of_the_beam(client: httpx.Client, model: Path) -> None:
    answer = client.post("/v1/overlay?format=json&style=plain", files={"file": png(3)}).json()
    best = Captioner.load(model)(png(3), n_best=2)
    assert answer["texts"] == [best.text, best.alternatives[0].text]
    assert [len(caption["words"]) for caption in answer["captions"]] == [len(text.split()) for text in answer["texts"]]
    assert answer["picture"].startswith("data:image/jpeg;base64,")


def test_a_drawing_shows_the_caption_of_the_rank_that_is_asked_for(client: httpx.Client, model: Path) -> None:
    best = Captioner.load(model)(png(3), n_best=2)
    second = best.alternatives[0]
    page = client.post("/v1/overlay?format=html&rank=2", files={"file": png(3)}).text
    assert f"<title>{second.text}</title>" in page
    answer = client.post("/v1/overlay", json={"images": [b64(png(3))], "format": "json", "rank": 2}).json()
    assert answer["texts"] == [second.sentence, best.sentence]
    sheets = [client.post(f"/v1/overlay?{query}", files={"file": png(3)}).content for query in ("", "rank=1", "rank=2")]
    assert sheets[0] == sheets[1] != sheets[2]
    for rank, words in ((3, "the search gave 2"), (0, "from 1 to 20"), (21, "from 1 to 20"), ("x", "from 1 to 20")):
        refused = client.post(f"/v1/overlay?rank={rank}", files={"file": png(3)})
        assert refused.status_code == 422 and words in refused.json()["detail"]
    refused = client.post("/v1/overlay", json={"images": [b64(png(3))], "rank": True})
    assert refused.status_code == 422 and "whole number" in refused.json()["detail"]


def test_erased_cells_are_painted_over_in_the_drawing_too(client: httpx.Client) -> None:
    answer = client.post("/v1/overlay?format=json&erase=0:0", files={"file": png(3, 64)}).json()
    data = base64.b64decode(answer["picture"].partition(",")[2])
    drawn = np.asarray(Image.open(io.BytesIO(data)), np.float64)
    before = np.asarray(Image.open(io.BytesIO(png(3, 64))), np.float64)
    half = len(before) // 2
    assert np.abs(drawn[: half - 8, : half - 8] - before.reshape(-1, 3).mean(0)).max() < 8  # JPEG rounds
    assert np.abs(drawn[half:] - before[half:]).mean() < 8
    assert np.abs(before[: half - 8, : half - 8] - before.reshape(-1, 3).mean(0)).max() > 16


def test_erased_cells_are_painted_over_before_the_picture_is_captioned(client: httpx.Client, model: Path) -> None:
    captioner = Captioner.load(model)
    for seed in range(8):
        pixels = np.asarray(Image.open(io.BytesIO(png(seed)))).copy()
        half = len(pixels) // 2
        pixels[half:, :half] = np.rint(pixels.reshape(-1, 3).mean(0))
        answer = client.post("/v1/caption?erase=1:0", files={"file": png(seed)}).json()
        assert answer["results"][0]["caption"] == captioner(pixels).text
    for wrong in ("2:0", "0:2", "x", "1:0:0", "-1:0"):
        refused = client.post("/v1/caption", params={"erase": wrong}, files={"file": png()})
        assert refused.status_code == 422 and "from 0:0 to 1:1" in refused.json()["detail"]


def test_models_probes_metrics_and_the_description(client: httpx.Client) -> None:
    client.post("/v1/caption", files={"file": png()})
    (listed,) = client.get("/v1/models").json()["data"]
    assert listed["id"] == "toy" and listed["attention"] == "soft"
    assert client.get("/live").status_code == client.get("/ready").status_code == 200
    text = client.get("/metrics").text
    for name in ("captioner_queue_depth", "captioner_batch_size", "captioner_request_seconds", "captioner_rejected"):
        assert name in text
    description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0" and "/v1/caption" in description["paths"]
    assert "/v1/caption" in client.get("/docs").text


def test_many_clients_at_once_get_their_own_captions(service: Running, expected: list[str]) -> None:
    wrong: list[tuple[int, str]] = []

    def ask(number: int) -> None:
        with service.client() as client:
            for seed in (number % 4, (number + 1) % 4):
                answer = client.post(f"/v1/caption?n_best={1 + number % 2}", files={"file": png(seed)})
                text = answer.json()["results"][0]["caption"]
                if text != expected[seed] and number % 2 == 0:
                    wrong.append((number, text))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_log_has_one_json_line_per_request_and_no_picture_name(service: Running, client: httpx.Client) -> None:
    client.post("/v1/caption", files={"file": ("secret-name.png", png())})
    lines = [json.loads(line) for line in service.lines if line.startswith("{")]
    assert lines[-1]["path"] == "/v1/caption" and lines[-1]["status"] == 200
    assert not any("secret-name" in line for line in service.lines)


def test_a_page_of_another_origin_is_not_allowed_by_default(client: httpx.Client) -> None:
    answer = client.post("/v1/caption", files={"file": png()}, headers={"Origin": "https://example.com"})
    assert "access-control-allow-origin" not in answer.headers


def test_a_token_guards_everything_but_probes(model: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    arguments = ("--model", str(model), "--token-file", str(tmp_path / "token"), "--cors", "https://example.com")
    with running(*arguments) as service, service.client() as client:
        assert client.get("/live").status_code == client.get("/ready").status_code == 200
        assert client.get("/metrics").status_code == 401
        answer = client.post("/v1/caption", files={"file": png()})
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer wrong", "s3cret", "Bearer é"):
            headers = {"Authorization": wrong.encode()}
            assert client.post("/v1/caption", files={"file": png()}, headers=headers).status_code == 401  # type: ignore[arg-type]
        allowed = {"Authorization": "Bearer s3cret", "Origin": "https://example.com"}
        answer = client.post("/v1/caption", files={"file": png()}, headers=allowed)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://example.com"
        assert answer.headers["access-control-expose-headers"] == "Retry-After"


def test_a_preflight_of_an_allowed_origin_needs_no_token(model: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    arguments = ("--model", str(model), "--token-file", str(tmp_path / "token"), "--cors", "https://example.com")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with running(*arguments) as service, service.client() as client:
        allowed = client.options("/v1/caption", headers={"Origin": "https://example.com", **asked})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://example.com"
        refused = client.options("/v1/caption", headers={"Origin": "https://example.org", **asked})
        assert "access-control-allow-origin" not in refused.headers
        unauthorized = client.post("/v1/caption", headers={"Origin": "https://example.com"}, content=png())
        assert unauthorized.status_code == 401  # and the page can read why
        assert unauthorized.headers["access-control-allow-origin"] == "https://example.com"


def test_slow_clients_are_not_waited_for(model: Path) -> None:
    """The body of one is late, the head of the other never ends."""
    head = b"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 99\r\n"
    with running("--model", str(model), "--timeout", "0.5") as service:
        host, port = service.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(head + b"\r\nab")
            assert b"504" in slow.recv(4096).splitlines()[0]
        with socket.create_connection((host, int(port)), timeout=10) as slower:
            slower.sendall(head)
            assert slower.recv(4096) == b""
        with service.client() as client:
            assert client.post("/v1/caption", files={"file": png()}).status_code == 200


def test_several_models_are_served_and_chosen_by_name(model: Path, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", seed=5).folder
    with running("--model", str(model), "--model", str(other)) as service, service.client() as client:
        assert [entry["id"] for entry in client.get("/v1/models").json()["data"]] == ["toy", "other"]
        answers = {name: client.post(f"/v1/caption?model={name}", content=png(2)).json() for name in ("toy", "other")}
        assert client.post("/v1/caption", content=png(2)).json()["model"] == "toy"
    for name, folder in (("toy", model), ("other", other)):
        assert answers[name]["model"] == name
        assert answers[name]["results"][0]["caption"] == Captioner.load(folder)(png(2)).text


def test_a_model_with_a_calibration_gives_its_confidence(client: httpx.Client, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "sure").folder
    add_file(folder, CONFIDENCE, json.dumps(handmade(coefficients={"gate": 1.0}, photo=2.0).to_json()).encode())
    expected = Captioner.load(folder)(png(3)).confidence
    with running("--model", str(folder)) as service, service.client() as sure:
        answer = sure.post("/v1/caption", content=png(3)).json()
        view = sure.post("/v1/overlay?format=json", content=png(3)).json()
    assert answer["results"][0]["confidence"] == pytest.approx(expected, abs=1e-4)
    assert view["captions"][0]["confidence"] == pytest.approx(expected, abs=1e-4)
    assert "confidence" not in client.post("/v1/caption", content=png(3)).json()["results"][0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model", "no-such-model"), "unknown model"),
        (("--token-file", "no-such-file"), "cannot be read"),
        (("--host", "192.0.2.1"), "cannot listen"),
    ],
)
def test_a_wrong_start_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with running(*arguments, ready=False) as service:
        code = service.process.wait(60)
    assert code == (1 if "listen" in sentence else 2)
    assert sentence in service.lines[-1] and not any("Traceback" in line for line in service.lines)


def test_a_damaged_model_ends_the_service_with_a_sentence(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "damaged")
    (copy / "decoder.onnx").write_bytes(b"x" * (copy / "decoder.onnx").stat().st_size)
    for workers in ("1", "2"):
        with running("--model", str(copy), "--workers", workers, ready=False) as service:
            assert service.process.wait(60) == 1
        assert any("decoder.onnx" in line for line in service.lines)
        assert not any("Traceback" in line for line in service.lines)


def test_the_service_opens_no_connection_and_writes_no_file(model: Path, tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "events"
    home.mkdir()
    (tmp_path / "sitecustomize.py").write_text(AUDIT.format(log=str(log)))
    environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "HOME": str(home), "XDG_CACHE_HOME": str(home / "c")}
    with running("--model", str(model), environment=environment) as service:
        with service.client() as client:
            large = png(size=4000)  # a part that starlette would write to a temporary file
            assert len(large) > 20_000
            assert client.post("/v1/caption", files={"file": large}).status_code == 200
            assert client.post("/v1/caption", json={"image": "http://192.0.2.1/a.jpg"}).status_code == 422
            assert client.post("/v1/overlay?format=html", files={"file": png()}).status_code == 200
        assert service.stop() == 0
    assert log.read_text().splitlines() == ["started"]
    assert list(home.rglob("*")) == []
