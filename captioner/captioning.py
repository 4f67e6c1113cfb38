"""Captioner: a loaded model that captions one picture, a list of pictures, or a stream."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
from PIL import Image

from captioner.bundle.layout import CONFIDENCE
from captioner.bundle.loading import Bundle
from captioner.bundle.manifest import Manifest
from captioner.caption import Caption, Failure
from captioner.errors import CaptionerError, UsageError
from captioner.images.limits import MEMORY_LIMIT, PIXEL_LIMIT, SECONDS_PER_PICTURE, Limits
from captioner.images.reading import ImageSource, load_for_model
from captioner.inference.backend import Backend
from captioner.inference.confidence import ConfidenceModel, load_confidence
from captioner.inference.model_loading import LoadingModel, processors, start_loading
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, caption_of, force
from captioner.inference.search.constraints import Constraints
from captioner.inference.streaming import CaptionStream
from captioner.installation import install_command
from captioner.options import BATCH, BackendName, SearchKeywords, check_names
from captioner.text.tokenizer import tokenize

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Captioner:
    """A model ready to caption pictures.

    A picture is a path, bytes, a file opened with 'rb', a Pillow image, a numpy array or a torch tensor: (height,
    width), (height, width, channels) or (channels, height, width), as uint8 or as floats in 0..1.

    Keyword arguments of `__call__`, `stream` and `force` are the fields of `SearchOptions`. Options that
    are not given have the model's default. A caption of a picture without a file keeps a thumbnail.
    `keep_pictures=True` keeps the picture itself, for overlays in full size.

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
        >>> [len(caption.alternatives) for caption in captioner([grey, grey], n_best=2)]
        [1, 1]
    """

    def __init__(
        self,
        backend: Backend,
        defaults: SearchOptions | None = None,
        manifest: Manifest | None = None,
        *,
        threads: int = 1,
        confidence: ConfidenceModel | None = None,
    ) -> None:
        """Wrap a backend; `load` is the usual way. `threads` is how many threads may use the backend at once."""
        self.backend = backend
        self.threads = threads
        self.defaults = defaults or SearchOptions()
        self.manifest = manifest
        self.confidence = confidence

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

        Args:
            model: Name of a model (see `captioner models`) or the folder of a bundle.
            backend: `auto` is onnxruntime, or torch if a `device` other than the CPU is given. `int8` is onnxruntime
                with the model's 8-bit graphs, if it has them. `quick` is `int8` where the processor has instructions
                for it and the model has such graphs with fixed scales, else `auto`.
            device: Device for torch, such as "cuda".
            threads: Processors to use; all by default.
        """
        return finish_loading(start_loading(model, backend=backend, device=device, threads=threads))

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a str is a sequence too; the first overload takes it
        self,
        source: ImageSource,
        *,
        pixel_limit: int = ...,
        memory_limit: int = ...,
        seconds_per_picture: float = ...,
        keep_pictures: bool = ...,
        **options: Unpack[SearchKeywords],
    ) -> Caption: ...

    @overload
    def __call__(
        self,
        source: Sequence[ImageSource],
        *,
        pixel_limit: int = ...,
        memory_limit: int = ...,
        seconds_per_picture: float = ...,
        keep_pictures: bool = ...,
        **options: Unpack[SearchKeywords],
    ) -> list[Caption]: ...

    def __call__(
        self,
        source: ImageSource | Sequence[ImageSource],
        *,
        pixel_limit: int = PIXEL_LIMIT,
        memory_limit: int = MEMORY_LIMIT,
        seconds_per_picture: float = SECONDS_PER_PICTURE,
        keep_pictures: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> Caption | list[Caption]:
        """The caption of a picture, or a list of captions for a list of pictures.

        A picture that cannot be read raises CaptionerError. `stream` continues with the next picture instead.

        Args:
            source: A picture, or a list or tuple of pictures.
            pixel_limit: Refuse pictures with more pixels.
            memory_limit: Megabytes that all pictures being decoded may take. One that needs more alone is refused.
            seconds_per_picture: Give up a picture whose reading takes longer.
            keep_pictures: Keep pictures that have no file in full size.
            options: Fields of `SearchOptions`.
        """
        limits = _limits(pixel_limit, memory_limit, seconds_per_picture)
        stream = self._checked_stream(options, limits=limits, keep_pictures=keep_pictures)
        if isinstance(source, (list, tuple)):
            return [_caption_or_error(result) for result in stream.run(source)]
        picture, pixels = load_for_model(
            source,  # type: ignore[arg-type]  # a list or tuple has been handled
            self.backend.image_size,
            keep=keep_pictures,
            limits=limits,
        )
        (result,) = stream.captions([picture], stream.encode(pixels[None]))
        return _caption_or_error(result)

    def stream(
        self,
        sources: Iterable[ImageSource],
        *,
        batch: int = BATCH,
        pixel_limit: int = PIXEL_LIMIT,
        memory_limit: int = MEMORY_LIMIT,
        seconds_per_picture: float = SECONDS_PER_PICTURE,
        keep_pictures: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> Iterator[Caption | Failure]:
        """Captions in the order of the pictures, each as soon as it and those before it are finished.

        A picture that cannot be read, or that is no picture, gives a Failure at its position.

        Args:
            sources: Pictures; an iterator is read only a little ahead.
            batch: Pictures searched together.
            pixel_limit: Refuse pictures with more pixels.
            memory_limit: Megabytes that all pictures being decoded may take. One that needs more alone is refused.
            seconds_per_picture: Give up a picture whose reading takes longer.
            keep_pictures: Keep pictures that have no file in full size.
            options: Fields of `SearchOptions`.
        """
        _check_sources(sources)
        limits = _limits(pixel_limit, memory_limit, seconds_per_picture)
        stream = self._checked_stream(options, batch=batch, limits=limits, keep_pictures=keep_pictures)
        return stream.run(sources)

    def force(
        self,
        source: ImageSource,
        text: str,
        *,
        pixel_limit: int = PIXEL_LIMIT,
        memory_limit: int = MEMORY_LIMIT,
        seconds_per_picture: float = SECONDS_PER_PICTURE,
        keep_pictures: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> Caption:
        """A given sentence about a picture, with the model's log-probability and attention map for each word.

        A word that the model doesn't know is read as `<unk>` and shown as given.
        """
        if not isinstance(text, str):
            raise UsageError(f"text must be a sentence, not {text!r}")
        limits = _limits(pixel_limit, memory_limit, seconds_per_picture)
        search_options = self.options(**options)
        picture, pixels = load_for_model(source, self.backend.image_size, keep=keep_pictures, limits=limits)
        annotations = self.backend.encode(pixels[None])
        numbers = self.backend.vocabulary.encode(text)
        ((hypothesis,),) = force(self.backend, annotations, [[numbers]], search_options)
        return caption_of(hypothesis, self.backend, picture, tokenize(text))

    def options(self, **options: Unpack[SearchKeywords]) -> SearchOptions:
        """The model's defaults, changed by these options and checked against its vocabulary.

        The beam is widened where `n_best` or `groups` need it, unless it is given.
        """
        check_names(options)
        n_best, groups = options.get("n_best", self.defaults.n_best), options.get("groups", self.defaults.groups)
        # A value of a wrong type is left for SearchOptions to report.
        if "beam" not in options and isinstance(n_best, int) and isinstance(groups, int) and groups > 0:
            options["beam"] = -(-max(self.defaults.beam, n_best) // groups) * groups
        search_options = replace(self.defaults, **options)  # type: ignore[arg-type]  # SearchOptions takes single words too
        Constraints.of(search_options, self.backend.vocabulary)
        return search_options

    def __repr__(self) -> str:
        manifest, backend = self.manifest, type(self.backend).__name__
        model = "" if manifest is None else f"model={manifest.name!r}, attention={manifest.attention!r}, "
        return f"Captioner({model}backend={backend}, threads={self.threads})"

    def _checked_stream(
        self, options: SearchKeywords, *, limits: Limits, keep_pictures: bool, batch: int = BATCH
    ) -> CaptionStream:
        _check_positive(batch=batch)
        return CaptionStream(
            self.backend, self.options(**options), self.threads, batch, limits, bool(keep_pictures), self.confidence
        )


def finish_loading(loading: LoadingModel) -> Captioner:
    """The captioner of a model, once its graphs are loaded."""
    bundle = loading.bundle
    threads = 1
    backend: Backend
    if loading.backend == "torch":
        backend = _torch_backend(bundle, loading.device, loading.threads)
    else:
        backend = OnnxBackend(bundle, int8=loading.backend == "int8", sessions=loading.sessions)
        threads = loading.threads or processors()
    manifest = bundle.manifest
    return Captioner(backend, manifest.decoding, manifest, threads=threads, confidence=_confidence(bundle))


def _limits(pixel_limit: int, memory_limit: int, seconds_per_picture: float) -> Limits:
    _check_positive(pixel_limit=pixel_limit, memory_limit=memory_limit)
    if not isinstance(seconds_per_picture, (int, float)) or not seconds_per_picture > 0:
        raise UsageError(f"seconds_per_picture must be a number above 0, not {seconds_per_picture!r}")
    return Limits(pixel_limit, memory_limit, seconds_per_picture)


def _check_positive(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} must be a whole number of 1 or more, not {value!r}")


def _caption_or_error(result: Caption | Failure) -> Caption:
    if isinstance(result, Failure):
        raise CaptionerError(result.reason)
    return result


def _check_sources(sources: object) -> None:
    """Refuse a single picture where several are expected: its characters, bytes or rows are no pictures."""
    single = isinstance(sources, (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)) or hasattr(
        sources, "read"
    )
    if single or not isinstance(sources, Iterable) or (isinstance(sources, np.ndarray) and sources.ndim < 4):
        raise UsageError(
            f"stream takes several pictures, not one {type(sources).__name__}; pass a list, such as [picture]"
        )


def _confidence(bundle: Bundle) -> ConfidenceModel | None:
    """The confidence model of a bundle; None for a bundle without one."""
    if CONFIDENCE not in bundle.manifest.files:
        return None
    return load_confidence(bundle.path(CONFIDENCE), bundle.manifest.encoder.annotation_size)


def _torch_backend(bundle: Bundle, device: str | None, threads: int | None) -> Backend:
    try:
        import torch

        from captioner.inference.torch_backend import load_backend
    except ModuleNotFoundError as error:
        raise UsageError(f"the torch backend needs the package {error.name!r}: {install_command('train')}") from None
    if threads:
        torch.set_num_threads(threads)
    backend: Backend = load_backend(bundle, device)
    return backend
