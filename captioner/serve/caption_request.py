"""Pictures and options of a request: multipart form, raw body, or JSON with base64.

Pictures stay in memory: no part of a request is written to disk.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from captioner.captioning import Captioner
from captioner.errors import UsageError, brief, unknown
from captioner.images.inputs import PictureBytes
from captioner.images.reading import is_url
from captioner.options import SearchOptions
from captioner.serve.problems import Problem
from captioner.serve.service_settings import ServiceSettings
from captioner.writers.wording import STYLES, Wording

# The work of a request grows with these options, so the service bounds them more tightly than the library does.
LARGEST = {
    "beam": 20,
    "n_best": 20,
    "groups": 20,
    "min_length": 50,
    "max_length": 50,
    "no_repeat": 50,
    "top_k": 1_000_000,
    "seed": 2**53,  # larger whole numbers are not exact in JSON
}
MOST_WORDS = 20  # required, and forbidden
SEARCH = {field.name: field for field in fields(SearchOptions)}
# Options that are none of the search, with their defaults.
OWN: dict[str, Any] = {
    "model": "",
    "style": STYLES[0],
    "words": False,
    "maps": False,
    "word_alternatives": False,
    "erase": [],
}
LISTS = ("required", "forbidden", "erase")
_KINDS = {str: "text", bool: "true or false", list: "a list"}
_CELL = re.compile(r"([0-9]{1,4}):([0-9]{1,4})")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
T = TypeVar("T")
# application/x-www-form-urlencoded is what `curl --data-binary` sends unless it is told otherwise.
_RAW = ("application/octet-stream", "application/x-www-form-urlencoded", "")
_NOT_FETCHED = "this service does not fetch addresses; send the picture itself as base64 or as a data URL"


@dataclass(frozen=True)
class CaptionRequest:
    """What a client asked for."""

    pictures: tuple[PictureBytes, ...]
    search: dict[str, Any]  # the search options that were given
    model: str | None
    wording: Wording
    words: bool  # each word with its probability
    maps: bool  # each word's attention map as well
    word_alternatives: bool  # each word with the likeliest words at its position
    erase: tuple[str, ...]  # cells of the grid to paint over, as row:column

    def options(self, captioner: Captioner) -> SearchOptions:
        """The model's own search options with the given ones instead."""
        options = captioner.options(**self.search) if self.search else _defaults(captioner)
        for name, most in LARGEST.items():
            if name in self.search and getattr(options, name) > most:
                raise UsageError(f"{name} {getattr(options, name)} is too large; this service allows {most:,}")
        for name in ("required", "forbidden"):
            if len(getattr(options, name)) > MOST_WORDS:
                raise UsageError(f"{name} has more than {MOST_WORDS} words")
        return options

    def erased(self, captioner: Captioner) -> NDArray[np.bool_] | None:
        """The cells to paint over, (rows, cols); None if there are none."""
        rows, cols = captioner.backend.rows, captioner.backend.cols
        if len(self.erase) > rows * cols:
            raise UsageError(f"erase has {len(self.erase):,} cells, and the grid has {rows * cols}; give each one once")
        cover = np.zeros((rows, cols), np.bool_)
        for cell in self.erase:
            match = _CELL.fullmatch(cell)
            if match is None or int(match[1]) >= rows or int(match[2]) >= cols:
                last = f"{rows - 1}:{cols - 1}"
                raise UsageError(f"erase: {cell[:100]!r} is not a cell; give row:column, from 0:0 to {last}")
            cover[int(match[1]), int(match[2])] = True
        return cover if self.erase else None


@lru_cache(maxsize=64)
def _defaults(captioner: Captioner) -> SearchOptions:
    """The options of most requests, which are checked against the vocabulary only once."""
    return captioner.options()


class _InMemoryParser(MultiPartParser):
    """Starlette's parser writes larger files to the disk. The limit of the body makes that unnecessary."""

    spool_max_size = 2**40


async def read_request(request: Request, settings: ServiceSettings) -> CaptionRequest:
    """The pictures and options of a request, checked."""
    return build_request(*await read_body(request, settings), settings)


async def read_body(request: Request, settings: ServiceSettings) -> tuple[list[PictureBytes], dict[str, Any]]:
    """Pictures and options, read by the content type. The query may have options too."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = {name: request.query_params.getlist(name) for name in request.query_params if name != "name"}
    values = {name: _from_texts(name, texts) for name, texts in query.items()}
    if kind == "multipart/form-data":
        pictures, form = await _read_form(request, settings)
        return pictures, values | {name: _from_texts(name, texts) for name, texts in form.items()}
    if kind == "application/json":
        members = await read_json(request)
        images = members.pop("images", None)
        if images is None:
            images = [members.pop("image")] if "image" in members else []
        return await in_reader(request, decode_images, images), values | members
    if kind.startswith("image/") or kind in _RAW:
        data = await request.body()
        return [named(request.query_params.get("name", "image"), data)] if data else [], values
    raise Problem(
        415,
        f"the content type {kind[:100]!r} is not supported; send multipart/form-data with files, a picture as the "
        "raw body, or application/json with base64 in `images`",
    )


def build_request(pictures: list[PictureBytes], values: Mapping[str, Any], settings: ServiceSettings) -> CaptionRequest:
    """Check the number of pictures, the names of the options, and the options that are none of the search."""
    check_pictures(pictures, settings)
    for name in values:
        if name not in OWN and name not in SEARCH:
            raise unknown("option", name[:100], [*OWN, *SEARCH])
    own: dict[str, Any] = {**OWN, **{name: value for name, value in values.items() if name in OWN}}
    for name, default in OWN.items():
        if not isinstance(own[name], type(default)):
            raise UsageError(f"{name} must be {_KINDS[type(default)]}, not {brief(own[name])}")
    if not all(isinstance(cell, str) for cell in own["erase"]):
        raise UsageError("erase must be a list of cells, such as 3:4")
    if own["style"] not in STYLES:
        raise unknown("style", own["style"][:100], STYLES)
    return CaptionRequest(
        tuple(pictures),
        {name: value for name, value in values.items() if name in SEARCH},
        own["model"] or None,
        Wording(own["style"]),
        own["words"] or own["maps"] or own["word_alternatives"],
        own["maps"],
        own["word_alternatives"],
        tuple(own["erase"]),
    )


def check_pictures(pictures: list[PictureBytes], settings: ServiceSettings) -> None:
    if not pictures:
        raise UsageError("the request has no picture")
    if len(pictures) > settings.max_pictures:
        raise Problem(413, f"{len(pictures)} pictures in one request; this service allows {settings.max_pictures}")


async def in_reader(request: Request, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that may take long in one of the service's reading threads, so that others are answered."""
    readers = request.app.state.service.readers
    return await asyncio.get_running_loop().run_in_executor(readers, function, *arguments)


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object."""
    return await in_reader(request, _parse_json, await request.body())


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not valid JSON") from None
    if not isinstance(members, dict):
        raise Problem(400, "the body must be a JSON object")
    return members


def decode_images(images: Any) -> list[PictureBytes]:
    """Pictures from base64 strings or data URLs."""
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        raise UsageError("`images` must be a list of base64 strings or data URLs")
    return [named(f"image {number}", decode_image(image)) for number, image in enumerate(images, 1)]


def decode_image(text: str) -> bytes:
    """The bytes of a base64 string or data URL. Addresses are never fetched."""
    if text[:5].lower() == "data:":
        header, _, text = text.partition(",")
        if not header.lower().endswith(";base64"):
            raise UsageError("a data URL must contain base64: data:image/jpeg;base64,…")
    elif is_url(text[:100]):
        raise UsageError(_NOT_FETCHED)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise UsageError("a picture is not valid base64") from None


def named(name: str, data: bytes) -> PictureBytes:
    """A picture with the last part of its file name, printable and of bounded length: answers repeat it."""
    picture = PictureBytes(data)
    last = PurePath(name.replace("\\", "/")).name
    picture.name = "".join(letter if letter.isprintable() else "?" for letter in last)[:200] or "image"
    return picture


async def _read_form(request: Request, settings: ServiceSettings) -> tuple[list[PictureBytes], dict[str, list[str]]]:
    limits = {"max_files": settings.max_pictures, "max_fields": 100}
    try:
        form = await _InMemoryParser(request.headers, request.stream(), **limits).parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise Problem(
                413, f"more pictures in one request than this service allows: {settings.max_pictures}"
            ) from None
        raise Problem(400, f"the form cannot be read: {error.message}") from None
    pictures: list[PictureBytes] = []
    fields: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            pictures.append(named(value.filename or "image", await value.read()))
        else:
            fields.setdefault(name, []).append(value)
    return pictures, fields


def _from_texts(name: str, texts: list[str]) -> Any:
    """The value of a form field or query parameter, as JSON would have it."""
    if name in LISTS:
        return [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if len(texts) > 1:
        raise UsageError(f"{name[:100]} was given {len(texts)} times")
    (text,) = texts
    default = SEARCH[name].default if name in SEARCH else OWN.get(name, "")
    if isinstance(default, bool):
        if text.lower() not in _TRUE + _FALSE:
            raise UsageError(f"{name} must be true or false, not {text[:100]!r}")
        return text.lower() in _TRUE
    if isinstance(default, int | float):
        try:
            return type(default)(text)
        except ValueError:
            whole = "whole number" if isinstance(default, int) else "number"
            raise UsageError(f"{name} must be a {whole}, not {text[:100]!r}") from None
    return text
