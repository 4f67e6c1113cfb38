"""Real clients of the services that this one stands in for, and PhotoPrism's call as it sends it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.pictures import b64, png
from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def service(model: Path) -> Iterator[Running]:
    with running("--model", str(model)) as service:
        yield service


@pytest.fixture(scope="module")
def sentence(service: Running) -> str:
    with service.client() as client:
        return str(client.post("/v1/caption", files={"file": png()}).json()["results"][0]["sentence"])


def test_the_openai_client_gets_the_caption(service: Running, sentence: str) -> None:
    openai = pytest.importorskip("openai", reason="the openai package is a test dependency")
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)
    content = [
        {"type": "text", "text": "What is in this picture?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(png())}"}},
    ]
    messages = [{"role": "user", "content": content}]
    answer = client.chat.completions.create(model="toy", messages=messages)
    assert answer.choices[0].message.content == sentence
    chunks = client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == sentence
    assert [model.id for model in client.models.list()] == ["toy"]
    with pytest.raises(openai.UnprocessableEntityError, match="no picture"):
        client.chat.completions.create(model="toy", messages=[{"role": "user", "content": "hello"}])
    client.close()


def test_the_ollama_client_gets_the_caption(service: Running, sentence: str, request: pytest.FixtureRequest) -> None:
    ollama = pytest.importorskip("ollama", reason="the ollama package is a test dependency")
    client = ollama.Client(host=service.url)
    request.addfinalizer(client._client.close)
    answer = client.generate(model="toy", prompt="Describe the picture.", images=[png()])
    assert answer["response"] == sentence and answer["done"]
    parts = list(client.generate(model="toy", prompt="", images=[png()], stream=True))
    assert "".join(part["response"] for part in parts) == sentence and parts[-1]["done"]
    chat = client.chat(model="toy", messages=[{"role": "user", "content": "?", "images": [png()]}])
    assert chat["message"]["content"] == sentence
    assert [model["model"] for model in client.list()["models"]] == ["toy:latest"]
    with pytest.raises(ollama.ResponseError, match="not a picture"):
        client.generate(model="toy", prompt="", images=[b"not a picture"])


def test_photoprism_s_caption_call_is_answered_in_its_form(service: Running, sentence: str) -> None:
    identifier = str(uuid.uuid4())
    request = {"id": identifier, "model": "", "suffix": "", "stream": False}
    with service.client() as client:
        images = [f"data:image/png;base64,{b64(png())}"]
        answer = client.post("/api/v1/vision/caption", json={**request, "images": images}).json()
        assert answer["id"] == identifier and answer["code"] == 200
        assert answer["result"]["caption"]["text"] == sentence
        refused = client.post("/api/v1/vision/caption", json={**request, "url": "https://127.0.0.1/a.jpg"})
        assert refused.status_code == 422 and "does not fetch" in refused.json()["detail"]
