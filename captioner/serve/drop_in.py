"""The calls of programs that people already run: OpenAI, Ollama and PhotoPrism clients.

Each answers with the captions of the pictures in the request. Prompts are accepted and ignored: the model describes a
picture and follows no instructions.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner.caption import Caption, Failure
from captioner.errors import CaptionerError, UsageError
from captioner.serve.batcher import Batcher
from captioner.serve.caption_request import build_request, decode_images, in_reader, read_json
from captioner.serve.service import Service


def error_members(path: str, status: int, detail: str) -> dict[str, Any]:
    """What the clients of these calls read from an error, beside the members of RFC 9457."""
    if path == "/v1/chat/completions":
        return {"error": {"message": detail, "type": "invalid_request_error", "param": None, "code": None}}
    if path.startswith("/api/v1/vision/"):
        return {"code": status, "error": detail}
    return {"error": detail} if path.startswith("/api/") else {}


async def openai_chat(request: Request) -> Response:
    """POST /v1/chat/completions with image parts."""
    body = await read_json(request)
    parts = [
        part
        for message in _messages(body)
        for part in (message["content"] if isinstance(message.get("content"), list) else [])
        if isinstance(part, dict) and part.get("type") == "image_url"
    ]
    text, batcher = await _text(request, [_address(part) for part in parts], body)
    common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": batcher.name}
    words = len(text.split())
    usage = {"prompt_tokens": 0, "completion_tokens": words, "total_tokens": words}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return JSONResponse({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
    deltas = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas
    ]
    options = body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        chunks.append({"choices": [], "usage": usage})
    events = [json.dumps({**common, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return Response("".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]), media_type="text/event-stream")


async def ollama_generate(request: Request) -> Response:
    """POST /api/generate with `images`."""
    body = await read_json(request)
    text, batcher = await _text(request, body.get("images") or [], body)
    return _ollama(body, batcher, {"response": text}, {"response": ""})


async def ollama_chat(request: Request) -> Response:
    """POST /api/chat with `images` in the messages."""
    body = await read_json(request)
    lists = [message.get("images") or [] for message in _messages(body)]
    if not all(isinstance(images, list) for images in lists):
        raise UsageError("`images` must be a list of base64 strings")
    text, batcher = await _text(request, [image for images in lists for image in images], body)
    message = {"role": "assistant", "content": text}
    return _ollama(body, batcher, {"message": message}, {"message": {**message, "content": ""}})


async def ollama_tags(request: Request) -> Response:
    """GET /api/tags: the models, as Ollama lists them."""
    service: Service = request.app.state.service
    names = [f"{name}:latest" for name in service.batchers]
    return JSONResponse({"models": [{"name": name, "model": name} for name in names]})


async def photoprism_caption(request: Request) -> Response:
    """POST /api/v1/vision/caption: PhotoPrism's vision service."""
    body = await read_json(request)
    if "url" in body and "images" not in body:
        raise UsageError("this service does not fetch addresses; set the model's FileScheme to `data` in PhotoPrism")
    text, batcher = await _text(request, body.get("images") or [], body)
    identifier = body["id"] if isinstance(body.get("id"), str) else str(uuid.uuid4())
    return JSONResponse(
        {
            "id": identifier,
            "code": 200,
            "model": {"type": "caption", "name": batcher.name, "version": "latest"},
            "result": {"caption": {"text": text, "source": "image"}},
        }
    )


async def _text(request: Request, images: Any, body: dict[str, Any]) -> tuple[str, Batcher]:
    """One sentence per picture, joined by spaces. Clients must name a model; an unknown name means the first one."""
    service: Service = request.app.state.service
    pictures = await in_reader(request, decode_images, images)
    name = str(body.get("model")).removesuffix(":latest")
    batcher = service.batcher(name if name in service.batchers else None)
    asked = build_request(pictures, {}, service.settings)
    results, _ = await service.caption(batcher, asked, asked.options(batcher.captioner))
    for result in results:
        if isinstance(result, Failure):
            raise CaptionerError(result.reason)
    return " ".join(result.sentence for result in results if isinstance(result, Caption)), batcher


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UsageError("`messages` must be a list of messages")
    return messages


def _address(part: dict[str, Any]) -> str:
    address = part.get("image_url")
    url = address.get("url") if isinstance(address, dict) else address
    if not isinstance(url, str):
        raise UsageError("an image part needs `image_url: {url: data:image/jpeg;base64,…}`")
    return url


def _ollama(body: dict[str, Any], batcher: Batcher, content: dict[str, Any], empty: dict[str, Any]) -> Response:
    """Ollama streams unless told otherwise: one line with the text, one that says it is done."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    common = {"model": batcher.name, "created_at": now}
    done = {"done": True, "done_reason": "stop"}
    if body.get("stream", True) is False:
        return JSONResponse({**common, **content, **done})
    lines = [{**common, **content, "done": False}, {**common, **empty, **done}]
    return Response("".join(json.dumps(line) + "\n" for line in lines), media_type="application/x-ndjson")
