"""POST /v1/overlay: where the model looked, as a sheet, as a page, or as data for the viewer."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from captioner.caption import Caption, Failure
from captioner.errors import UsageError, unknown
from captioner.overlay import page, painting, sheet, view_of
from captioner.overlay.embedding import data_uri
from captioner.overlay.model_captions import MAX_ALTERNATIVES, with_likeliest_cells
from captioner.overlay.page import LONG_SIDE
from captioner.serve.batcher import Batcher
from captioner.serve.caption_request import CaptionRequest, build_request, read_body
from captioner.serve.caption_response import failed
from captioner.serve.problems import Problem
from captioner.serve.service import Service
from captioner.writers.lines import record

PICTURE_SIDE = 1200  # pixels of the longer side: enough for the sheet, and more than the page shows
FORMATS = {"png": "image/png", "html": "text/html; charset=utf-8", "json": "application/json"}


async def overlay(request: Request) -> Response:
    """One picture per request. A page and the viewer's data also have the alternatives of the beam."""
    service: Service = request.app.state.service
    pictures, values = await read_body(request, service.settings)
    name = values.pop("format", "png")
    if name not in FORMATS:
        raise unknown("format", str(name)[:100], FORMATS)
    asked = build_request(pictures, values, service.settings)
    if len(asked.pictures) > 1:
        raise UsageError("an overlay shows one picture; send one per request")
    batcher = service.batcher(asked.model)
    options = asked.options(batcher.captioner)
    if name != "png" and "n_best" not in asked.search and not options.sample:
        options = replace(options, n_best=min(options.beam, MAX_ALTERNATIVES))
    (result,), _ = await service.caption(batcher, asked, options, long_side=PICTURE_SIDE)
    if isinstance(result, Failure):
        raise Problem(422, result.reason, results=[failed(result)])
    if batcher.captioner.backend.hard:
        result = with_likeliest_cells(result)
    content = await asyncio.get_running_loop().run_in_executor(None, _draw, result, name, asked, batcher)
    return Response(content, media_type=FORMATS[name])


def _draw(caption: Caption, name: str, asked: CaptionRequest, batcher: Batcher) -> bytes:
    if name == "html":
        return page(caption).encode("utf-8")
    if name == "json":
        return json.dumps(_view(caption, asked, batcher), allow_nan=False).encode("utf-8")
    data = io.BytesIO()
    sheet(caption).save(data, "PNG")
    return data.getvalue()


def _view(caption: Caption, asked: CaptionRequest, batcher: Batcher) -> dict[str, Any]:
    """`captions` is what `createViewer` of captioner/overlay/viewer.js takes. `texts` are the captions in words.

    `records` are those of `captioner caption --format jsonl`.
    """
    captions = [caption, *caption.alternatives]
    return {
        "model": batcher.name,
        "texts": [asked.wording.text(shown) for shown in captions],
        "picture": data_uri(painting.fit(painting.upright(caption.picture), LONG_SIDE), 85),
        "captions": view_of(caption),
        "records": [record(asked.pictures[0].name, shown) for shown in captions],
    }
