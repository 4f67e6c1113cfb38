"""Captioner: a loaded model as a function from pictures to captions, one, some, or a stream of them.

A stream reads pictures in threads, and encodes and searches whole batches in others, so that the three overlap;
what waits between them is bounded, whatever the number of pictures.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from captioner import bundle as bundles
from captioner.backend import Backend
from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.images import PIXEL_LIMIT, ImageSource, Picture, Pixels, load
from captioner.manifest import Manifest
from captioner.search import Hypothesis, SearchOptions, force, search
from captioner.search.constraints import Constraints
from captioner.text import UNK, Vocabulary

BATCH = 16  # pictures encoded and searched together
READERS = 2  # threads that read pictures
WORKERS = 2  # batches in work at once
IDLE = 0.05  # seconds without a new picture after which a batch is not waited for any longer

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """A picture that could not be captioned, in its place in a stream."""

    name: str
    reason: str


class Captioner:
    """A model ready to caption pictures.

    >>> import numpy as np
    >>> from captioner import Captioner
    >>> captioner = Captioner.load()
    >>> grey = np.full((120, 160, 3), 128, np.uint8)
    >>> caption = captioner(grey, beam=3)
    >>> caption.text == " ".join(word.text for word in caption.words)
    True
    >>> caption.words[0].alpha.shape == (captioner.backend.rows, captioner.backend.cols)
    True
    >>> [len(some.alternatives) for some in captioner([grey, grey], n_best=2)]
    [1, 1]
    """

    def __init__(
        self, backend: Backend, defaults: SearchOptions | None = None, manifest: Manifest | None = None
    ) -> None:
        self.backend = backend
        self.defaults = defaults or SearchOptions()
        self.manifest = manifest

    @classmethod
    def load(
        cls,
        model: str | Path = "default",
        *,
        backend: Literal["auto", "onnx", "torch"] = "auto",
        device: str | None = None,
        threads: int | None = None,
    ) -> Captioner:
        """Load a model by name or folder.

        `auto` is onnxruntime, unless a `device` other than the CPU is asked for, which torch serves. `threads`
        is for all work together; by default every processor is used.
        """
        if backend not in ("auto", "onnx", "torch"):
            raise unknown("backend", backend, ("auto", "onnx", "torch"))
        if threads is not None and threads < 1:
            raise UsageError(f"{threads} threads can do nothing; give 1 or more")
        folder = bundles.find(model)
        elsewhere = device is not None and device != "cpu"
        if backend == "onnx" and elsewhere:
            raise UsageError(f"onnxruntime runs on the CPU here; give --backend torch for the device {device!r}")
        if backend == "torch" or (backend == "auto" and elsewhere):
            bundle = bundles.load(folder)
            ready = _torch_backend(bundle, device, threads)
        else:
            # The checksums are computed while onnxruntime is imported: both take a tenth of a second.
            importing = threading.Thread(target=__import__, args=("onnxruntime",))
            importing.start()
            try:
                bundle = bundles.load(folder)
            finally:
                importing.join()
            from captioner.runtime import OnnxBackend

            ready = OnnxBackend(bundle, threads)
        decoding = bundle.manifest.decoding
        defaults = SearchOptions(
            beam=decoding.beam,
            length_power=decoding.length_power,
            max_length=decoding.max_length,
            look=decoding.look if bundle.manifest.attention == "hard" else None,
        )
        return cls(ready, defaults, bundle.manifest)

    @overload
    def __call__(self, source: ImageSource, *, pixel_limit: int = ..., **options: Any) -> Caption: ...

    @overload
    def __call__(self, source: Sequence[ImageSource], *, pixel_limit: int = ..., **options: Any) -> list[Caption]: ...

    def __call__(
        self, source: ImageSource | Sequence[ImageSource], *, pixel_limit: int = PIXEL_LIMIT, **options: Any
    ) -> Caption | list[Caption]:
        """The caption of a path, a Pillow image or an array; or a list of captions for a list of them.

        Options are those of `SearchOptions`. A picture that cannot be read is an error; `stream` goes on instead.
        """
        if isinstance(source, (list, tuple)):
            return [_or_raise(each) for each in self.stream(source, pixel_limit=pixel_limit, **options)]
        chosen = self.options(**options)
        picture, pixels = load(source, self.backend.image_size, pixel_limit=pixel_limit)  # type: ignore[arg-type]
        return _or_raise(self._captions([picture], pixels[None], chosen)[0])

    def stream(
        self,
        sources: Iterable[ImageSource],
        *,
        batch: int = BATCH,
        pixel_limit: int = PIXEL_LIMIT,
        **options: Any,
    ) -> Iterator[Caption | Failure]:
        """Captions in the order of the pictures, each as soon as it and those before it are done.

        A picture that cannot be read gives a Failure in its place.
        """
        return self._stream(sources, batch, pixel_limit, self.options(**options))

    def force(self, source: ImageSource, text: str, *, pixel_limit: int = PIXEL_LIMIT, **options: Any) -> Caption:
        """A given sentence about a picture, with the model's log-probability and map for each of its words.

        A word the model doesn't know is read as `<unk>` and shown as it was given.
        """
        from captioner.tokens import tokenize

        picture, pixels = load(source, self.backend.image_size, pixel_limit=pixel_limit)
        tokens = tokenize(text)
        numbers = self.backend.vocabulary.encode(text)
        annotations = self.backend.encode(pixels[None])
        ((found,),) = force(self.backend, annotations, [[numbers]], self.options(**options))
        return caption_of(found, self.backend, picture, tokens)

    def options(self, **options: Any) -> SearchOptions:
        """The model's own defaults with these instead, checked against its vocabulary.

        Words that must occur may be given as "cat|kitten": one of them.
        """
        names = [field.name for field in fields(SearchOptions)]
        for name in options:
            if name not in names:
                raise unknown("option", name, names)
        if "required" in options:
            options["required"] = tuple(
                tuple(each.split("|")) if isinstance(each, str) else tuple(each) for each in options["required"]
            )
        if "forbidden" in options:
            options["forbidden"] = tuple(options["forbidden"])
        if "beam" not in options:  # an n-best list needs as wide a beam; groups need one they divide
            groups = options.get("groups", 1)
            beam = max(self.defaults.beam, options.get("n_best", 1))
            options["beam"] = -(-beam // groups) * groups if groups > 0 else beam
        chosen = replace(self.defaults, **options)
        Constraints.of(chosen, self.backend.vocabulary)
        return chosen

    def _stream(
        self, sources: Iterable[ImageSource], batch: int, pixel_limit: int, options: SearchOptions
    ) -> Iterator[Caption | Failure]:
        size = self.backend.image_size
        reading = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        working = ThreadPoolExecutor(WORKERS, thread_name_prefix="caption")
        waiting: deque[Future[list[Caption | Failure]]] = deque()
        try:
            for chunk in _chunks(sources, batch):
                if chunk:
                    pictures = [reading.submit(load, each, size, pixel_limit=pixel_limit) for each in chunk]
                    names = [_name(each) for each in chunk]
                    waiting.append(working.submit(self._batch, names, pictures, options))
                while len(waiting) > (WORKERS + 1 if chunk else 0):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            reading.shutdown(wait=False, cancel_futures=True)
            working.shutdown(wait=True, cancel_futures=True)

    def _batch(
        self, names: list[str], pictures: list[Future[tuple[Picture, Pixels]]], options: SearchOptions
    ) -> list[Caption | Failure]:
        results: dict[int, Caption | Failure] = {}
        good: list[tuple[int, Picture, Pixels]] = []
        for i, (name, coming) in enumerate(zip(names, pictures, strict=True)):
            try:
                good.append((i, *coming.result()))
            except CaptionerError as error:
                results[i] = Failure(name, str(error))
        if good:
            pixels = np.stack([pixels for _, _, pixels in good])
            captions = self._captions([picture for _, picture, _ in good], pixels, options)
            results.update((i, caption) for (i, _, _), caption in zip(good, captions, strict=True))
        return [results[i] for i in range(len(names))]

    def _captions(
        self, pictures: list[Picture], pixels: NDArray[np.uint8], options: SearchOptions
    ) -> list[Caption | Failure]:
        found = search(self.backend, self.backend.encode(pixels), options)
        captions: list[Caption | Failure] = []
        for picture, some in zip(pictures, found, strict=True):
            if some:
                best, *rest = (caption_of(each, self.backend, picture) for each in some)
                captions.append(replace(best, alternatives=tuple(rest)))
            else:
                captions.append(Failure(picture.name, f"{picture.name}: no sentence meets all constraints at once"))
        return captions


def caption_of(
    found: Hypothesis, backend: Backend, picture: Picture | None, tokens: Sequence[str] | None = None
) -> Caption:
    """A hypothesis as words; `tokens` are shown for the words that the vocabulary doesn't have."""
    vocabulary: Vocabulary = backend.vocabulary
    rows, cols = backend.rows, backend.cols
    texts = [vocabulary.words[number] for number in found.words]
    if tokens is not None:
        texts = [given if text == UNK else text for text, given in zip(texts, tokens, strict=True)]
    if found.ended:
        texts.append(vocabulary.words[vocabulary.end])
    words = [
        Word(
            text=text,
            log_probability=float(found.log_probabilities[i]),
            alpha=found.alphas[i].reshape(rows, cols),
            gate=float(found.gates[i]),
            place=None if found.places is None else divmod(int(found.places[i]), cols),
        )
        for i, text in enumerate(texts)
    ]
    end = words.pop() if found.ended else None
    return Caption(tuple(words), end, found.score, picture)


def _or_raise(result: Caption | Failure) -> Caption:
    if isinstance(result, Failure):
        raise CaptionerError(result.reason)
    return result


def _name(source: ImageSource) -> str:
    return str(source) if isinstance(source, (str, Path)) else "image"


def _torch_backend(bundle: bundles.Bundle, device: str | None, threads: int | None) -> Backend:
    try:
        import torch

        from captioner.model.backend import load_backend
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the torch backend needs the package {error.name!r}: pip install 'captioner[train]'"
        ) from None
    if threads:
        torch.set_num_threads(threads)
    ready: Backend = load_backend(bundle, device)
    return ready


def _chunks(sources: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size`; fewer, or none, when a slow source has nothing more to give just now."""
    if isinstance(sources, Sequence):
        for start in range(0, len(sources), size):
            yield list(sources[start : start + size])
        return
    coming: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(4 * size)
    stopped = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                coming.put(item, timeout=1)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for source in sources:
                put((source,))
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    # A daemon: a reader that is stuck in a silent pipe must not keep the program from ending.
    threading.Thread(target=read, daemon=True, name="sources").start()
    chunk: list[T] = []
    idle = False  # whether the empty chunk that lets results through has been given
    try:
        while True:
            try:
                item = coming.get(timeout=None if idle else IDLE)
            except queue.Empty:
                idle = not chunk
                yield chunk
                chunk = []
                continue
            idle = False
            if item is None:
                break
            if isinstance(item, BaseException):
                raise item
            chunk.append(item[0])
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
    finally:
        stopped.set()
