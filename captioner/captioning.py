"""Captioner: a loaded model as a function from pictures to captions, one, some, or a stream of them.

A stream reads pictures in some threads and has others encode a few of them or search a batch, whichever comes
first in line, so that the three overlap and every processor has work; what waits between them is bounded, whatever
the number of pictures.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, overload

import numpy as np

from captioner.bundle import storage as bundles
from captioner.bundle.manifest import Manifest
from captioner.caption import Caption
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.images.decoding import PIXEL_LIMIT
from captioner.images.pixels import Pixels
from captioner.images.reading import ImageSource, Picture, load
from captioner.inference.backend import Annotations, Backend
from captioner.inference.batching import rounds
from captioner.inference.search import SearchOptions, caption_of, force, search
from captioner.inference.search.constraints import Constraints
from captioner.options import check_names

BackendName = Literal["auto", "onnx", "int8", "torch"]
BATCH = 32  # pictures searched together: large enough for the matrix products, small enough to come soon
PART = 8  # pictures that one thread encodes at a time
READERS = 2  # threads that read pictures
AHEAD = 2  # batches that are begun before the first of them is handed out


@dataclass(frozen=True)
class Failure:
    """A picture that could not be captioned, in its place in a stream."""

    name: str
    reason: str


_Part = tuple[list[Picture | Failure], Annotations | None]  # some pictures, and annotations of the good ones


class Captioner:
    """A model ready to caption pictures.

    Examples:
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
        self,
        backend: Backend,
        defaults: SearchOptions | None = None,
        manifest: Manifest | None = None,
        *,
        threads: int = 1,
    ) -> None:
        """`threads` is how many may use the backend at once."""
        self.backend = backend
        self.threads = threads
        self.defaults = defaults or SearchOptions()
        self.manifest = manifest

    @classmethod
    def load(
        cls,
        model: str | Path = "default",
        *,
        backend: BackendName = "auto",
        device: str | None = None,
        threads: int | None = None,
    ) -> Captioner:
        """Load a model by name or folder.

        `auto` is onnxruntime, unless a `device` other than the CPU is asked for, which torch serves. `int8` is
        onnxruntime with the model's 8-bit graphs, where it has them. `threads` is for all work together; by default
        every processor is used.
        """
        if backend not in get_args(BackendName):
            raise unknown("backend", backend, get_args(BackendName))
        if threads is not None and threads < 1:
            raise UsageError(f"{threads} threads can do nothing; give 1 or more")
        folder = bundles.find(model)
        elsewhere = device is not None and device != "cpu"
        if backend in ("onnx", "int8") and elsewhere:
            raise UsageError(f"onnxruntime runs on the CPU here; give --backend torch for the device {device!r}")
        if backend == "torch" or (backend == "auto" and elsewhere):
            bundle = bundles.load(folder)
            ready, workers = _torch_backend(bundle, device, threads), 1
        else:
            # The checksums are computed while onnxruntime is imported: both take a tenth of a second.
            importing = threading.Thread(target=_import_onnxruntime)
            importing.start()
            try:
                bundle = bundles.load(folder)
            finally:
                importing.join()
            from captioner.inference.onnx_backend import OnnxBackend, processors

            # Threads that each run a graph of their own get more done than a graph that is run by all of them.
            ready, workers = OnnxBackend(bundle, threads=1, int8=backend == "int8"), threads or processors()
        return cls(ready, bundle.manifest.decoding, bundle.manifest, threads=workers)

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
        return _or_raise(self._captions([picture], self.backend.encode(pixels[None]), chosen)[0])

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
        from captioner.text.tokenizer import tokenize

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
        check_names(options)
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
        working = ThreadPoolExecutor(self.threads, thread_name_prefix="caption")
        waiting: deque[Future[list[Caption | Failure]]] = deque()
        try:
            for batches in rounds(sources, batch, self.threads):
                encoding = []
                for some in batches:
                    pictures = [
                        (_name(each), reading.submit(load, each, size, pixel_limit=pixel_limit)) for each in some
                    ]
                    part = min(PART, -(-len(some) // self.threads))
                    starts = range(0, len(some), part)
                    encoding.append([working.submit(self._encode, pictures[i : i + part]) for i in starts])
                # First in, first out: when a search begins, its parts are encoded or just being so, and waiting
                # for them cannot block the threads that they need.
                waiting.extend(working.submit(self._search, parts, options) for parts in encoding)
                while len(waiting) > (AHEAD if batches else 0):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            reading.shutdown(wait=False, cancel_futures=True)
            working.shutdown(wait=True, cancel_futures=True)

    def _encode(self, pictures: list[tuple[str, Future[tuple[Picture, Pixels]]]]) -> _Part:
        """Annotations of the pictures that could be read."""
        results: list[Picture | Failure] = []
        good: list[Pixels] = []
        for name, coming in pictures:
            try:
                picture, pixels = coming.result()
                results.append(picture)
                good.append(pixels)
            except CaptionerError as error:
                results.append(Failure(name, str(error)))
        return results, self.backend.encode(np.stack(good)) if good else None

    def _search(self, parts: list[Future[_Part]], options: SearchOptions) -> list[Caption | Failure]:
        done = [part.result() for part in parts]
        results = [each for some, _ in done for each in some]
        annotations = [values for _, values in done if values is not None]
        pictures = [each for each in results if isinstance(each, Picture)]
        captions = iter(self._captions(pictures, _joined(annotations), options) if pictures else [])
        return [each if isinstance(each, Failure) else next(captions) for each in results]

    def _captions(
        self, pictures: list[Picture], annotations: Annotations, options: SearchOptions
    ) -> list[Caption | Failure]:
        found = search(self.backend, annotations, options)
        captions: list[Caption | Failure] = []
        for picture, some in zip(pictures, found, strict=True):
            if some:
                best, *rest = (caption_of(each, self.backend, picture) for each in some)
                captions.append(replace(best, alternatives=tuple(rest)))
            else:
                captions.append(Failure(picture.name, f"{picture.name}: no sentence meets all constraints at once"))
        return captions


def _joined(annotations: Sequence[Annotations]) -> Annotations:
    """Several batches as one."""
    if len(annotations) == 1:
        return annotations[0]
    first = annotations[0]
    values: Any
    if isinstance(first.values, np.ndarray):
        values = np.concatenate([each.values for each in annotations])
    else:
        import torch

        values = torch.cat([each.values for each in annotations])
    keys = [each.keys for each in annotations if each.keys is not None]
    return Annotations(values, first.rows, first.cols, np.concatenate(keys) if len(keys) == len(annotations) else None)


def _or_raise(result: Caption | Failure) -> Caption:
    if isinstance(result, Failure):
        raise CaptionerError(result.reason)
    return result


def _name(source: ImageSource) -> str:
    return str(source) if isinstance(source, (str, Path)) else "image"


def _import_onnxruntime() -> None:
    with suppress(ImportError):  # raised again, and heard, where it is needed
        import onnxruntime  # noqa: F401


def _torch_backend(bundle: bundles.Bundle, device: str | None, threads: int | None) -> Backend:
    try:
        import torch

        from captioner.inference.torch_backend import load_backend
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the torch backend needs the package {error.name!r}: pip install 'captioner[train]'"
        ) from None
    if threads:
        torch.set_num_threads(threads)
    ready: Backend = load_backend(bundle, device)
    return ready
