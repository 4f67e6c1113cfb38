"""POST /v1/overlay: where the model looked, as a sheet, as a page, or as data for the viewer."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

from captioner.caption import Caption, Failure
from captioner.errors import UsageError, brief, unknown
from captioner.evidence.blurring import Cover, blank
from captioner.overlay import page, painting, sheet, view_of
from captioner.overlay.embedding import data_uri
from captioner.overlay.model_captions import MAX_ALTERNATIVES, with_likeliest_cells
from captioner.overlay.page import LONG_SIDE
from captioner.serve.batcher import Batcher
from captioner.serve.caption_request import LARGEST, CaptionRequest, build_request, read_body
from captioner.serve.caption_response import failed
from captioner.serve.problems import Problem
from captioner.serve.service import Service
from captioner.writers.lines import record

PICTURE_SIDE = 1200  # pixels of the longer side: enough for the sheet, and more than the page shows
FORMATS = {"png": "image/png", "html": "text/html; charset=utf-8", "json": "application/json"}


async def overlay(request: Request) -> Response:
    """One picture per request. A page and the viewer's data also have the alternatives of the beam and of each word."""
    service: Service = request.app.state.service
    pictures, values = await read_body(request, service.settings)
    name, rank = values.pop("format", "png"), _rank(values.pop("rank", 1))
    if name not in FORMATS:
        raise unknown("format", str(name)[:100], FORMATS)
    values.setdefault("word_alternatives", name != "png")  # a sheet doesn't show them
    asked = build_request(pictures, values, service.settings)
    if len(asked.pictures) > 1:
        raise UsageError("an overlay shows one picture; send one per request")
    batcher = service.batcher(asked.model)
    options = asked.options(batcher.captioner)
    if (name != "png" or rank > 1) and "n_best" not in asked.search and not options.sample:
        options = replace(options, n_best=min(options.beam, MAX_ALTERNATIVES))
    (result,), _ = await service.caption(batcher, asked, options, long_side=PICTURE_SIDE)
    if isinstance(result, Failure):
        raise Problem(422, result.reason, results=[failed(result)])
    if batcher.captioner.backend.hard:
        result = with_likeliest_cells(result)
    result = _ranked(result, rank)
    content = await asyncio.get_running_loop().run_in_executor(None, _draw, result, name, asked, batcher)
    return Response(content, media_type=FORMATS[name])


def _rank(value: Any) -> int:
    """The number of the caption to draw, which a form has as text."""
    most = LARGEST["n_best"]
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:4])
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UsageError(f"rank must be a whole number from 1 to {most}, not {brief(value)}")
    return value


def _ranked(caption: Caption, rank: int) -> Caption:
    """The caption of this rank. The others are its alternatives, in their order."""
    captions = [replace(caption, alternatives=()), *caption.alternatives]
    if rank > len(captions):
        raise UsageError(f"there is no caption of rank {rank}: the search gave {len(captions)}; raise n_best")
    chosen = captions.pop(rank - 1)
    return replace(chosen, alternatives=tuple(captions))


def _draw(caption: Caption, name: str, asked: CaptionRequest, batcher: Batcher) -> bytes:
    if (erased := asked.erased(batcher.captioner)) is not None:
        caption = _without(caption, erased)
    if name == "html":
        return page(caption).encode("utf-8")
    if name == "json":
        return json.dumps(_view(caption, asked, batcher), allow_nan=False).encode("utf-8")
    data = io.BytesIO()
    sheet(caption).save(data, "PNG")
    return data.getvalue()


def _without(caption: Caption, erased: Cover) -> Caption:
    """The caption with the picture that the model saw: without the erased cells."""
    assert caption.picture is not None
    image = Image.fromarray(blank(np.asarray(caption.picture.open()), erased))
    return replace(caption, picture=replace(caption.picture, image=image))


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
