"""How much work captions take, counted and not timed: a slower way is noticed on a noisy machine too.

The bounds are relations (so many products per word), so that they hold for other models as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioner import Captioner
from captioner.bundle import verification
from captioner.bundle.layout import int8_graph
from captioner.bundle.loading import load_bundle
from captioner.cli import shard_options
from captioner.images import reading
from captioner.inference import onnx_backend, streaming
from captioner.inference.onnx_backend import INT8_AT_ONCE, OnnxBackend
from captioner.inference.search import beam as beam_module
from captioner.inference.search import search
from captioner.inference.streaming import CaptionStream
from captioner.scale import shards

ROOT = Path(__file__).resolve().parents[1]
PICTURES = sorted(map(str, (ROOT / "examples").glob("*.jpg")))
BATCH, BEAM = 4, 3


class CountedSession:
    """A graph that counts its runs and the rows of its first input's words."""

    def __init__(self, session: Any) -> None:
        self.session, self.runs, self.rows, self.pictures = session, 0, 0, 0

    def run(self, outputs: list[str], feeds: dict[str, np.ndarray]) -> Any:
        self.runs += 1
        self.rows += feeds["words"].size if "words" in feeds else 0
        self.pictures += len(feeds.get("pixels", ()))
        return self.session.run(outputs, feeds)


@pytest.fixture(scope="module")
def captioner() -> Captioner:
    return Captioner.load(ROOT / "weights" / "default", threads=1)


@pytest.fixture
def counted(captioner, monkeypatch) -> dict[str, CountedSession]:
    sessions = {
        name: CountedSession(getattr(captioner.backend, f"_{name}")) for name in ("encoder", "begin", "decoder")
    }
    for name, session in sessions.items():
        monkeypatch.setattr(captioner.backend, f"_{name}", session)
    return sessions


def test_graph_runs_vocabulary_products_and_copies_per_caption(captioner, counted, monkeypatch):
    backend = captioner.backend
    copied: Counter[str] = Counter()
    for kind in ("select_hypotheses", "select_images"):
        real = getattr(backend, kind)

        def copy(state, index, real=real, kind=kind):
            result = real(state, index)
            arrays = [*result.own.values(), *(result.shared.values() if kind == "select_images" else ())]
            copied[kind] += sum(array.nbytes for array in arrays)
            return result

        monkeypatch.setattr(backend, kind, copy)
    captions = list(captioner.stream(PICTURES, batch=BATCH, beam=BEAM))
    assert len(captions) == len(PICTURES) == 8
    assert (counted["encoder"].runs, counted["encoder"].pictures) == (8, 8)
    assert counted["begin"].runs == 8 // BATCH
    # A step per word of the longest caption, and a few until no other hypothesis can become better.
    longest = [max(len(caption.words) + 1 for caption in captions[i : i + BATCH]) for i in range(0, 8, BATCH)]
    assert counted["decoder"].runs <= sum(longest) + 4 * len(longest)
    # A row is a product with the whole vocabulary: one for the first word, then one per hypothesis and word.
    needed = sum(1 + BEAM * len(caption.words) for caption in captions)
    assert counted["decoder"].rows <= 1.3 * needed
    state = backend.begin(backend.encode(np.zeros((1, backend.image_size, backend.image_size, 3), np.uint8)))
    own = sum(array.nbytes for array in state.own.values())
    shared = sum(array.nbytes for array in state.shared.values())
    assert copied["select_hypotheses"] <= counted["decoder"].rows * own
    # An image is copied when another one of its batch ends before it: (BATCH - 1) / 2 times on average, or less.
    assert copied["select_images"] <= 8 * (BATCH - 1) / 2 * (shared + BEAM * own)


def test_annotations_are_copied_three_times_and_in_memory_once_during_the_search(captioner, monkeypatch):
    backend = captioner.backend
    encode, begin = backend.encode, backend.begin
    copied: Counter[str] = Counter()
    parts: list[weakref.ref[np.ndarray]] = []
    others: list[np.ndarray] = []  # arrays that are in memory beside those that are searched

    def counted_encode(pixels, **options):
        annotations = encode(pixels, **options)
        copied["encode"] += annotations.values.nbytes
        parts.append(weakref.ref(annotations.values))
        return annotations

    def counted_begin(annotations, *args):
        state = begin(annotations, *args)
        copied["begin"] += state.shared["annotations"].nbytes
        return state

    def counted_search(backend, annotations, options):
        others.extend(array for part in parts if (array := part()) is not None)
        copied["join"] += annotations.values.nbytes
        return search(backend, annotations, options)

    monkeypatch.setattr(backend, "encode", counted_encode)
    monkeypatch.setattr(backend, "begin", counted_begin)
    monkeypatch.setattr(streaming, "search", counted_search)
    stream = CaptionStream(backend, captioner.options(), threads=2)
    captions = list(stream.run_rounds([[PICTURES]]))
    once = backend.encode(np.zeros((1, backend.image_size, backend.image_size, 3), np.uint8)).values.nbytes
    assert (len(captions), len(parts) - 1) == (8, 2)
    assert sum(copied.values()) - once <= 3 * 8 * once
    assert others == []


def test_a_stream_keeps_no_pixels_and_annotations_while_its_caller_works(captioner, monkeypatch):
    kept: list[weakref.ref[np.ndarray]] = []
    encode = captioner.backend.encode

    def noted_load(*args, **options):
        picture, pixels = reading.load_for_model(*args, **options)
        kept.append(weakref.ref(pixels))
        return picture, pixels

    def noted_encode(*args, **options):
        annotations = encode(*args, **options)
        kept.append(weakref.ref(annotations.values))
        return annotations

    monkeypatch.setattr(streaming, "load_for_model", noted_load)
    monkeypatch.setattr(captioner.backend, "encode", noted_encode)
    captions = captioner.stream(PICTURES)
    next(captions)
    end = time.monotonic() + 10  # for the thread that searched to drop its own variables
    while any(array() is not None for array in kept) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(kept) > 8
    assert [array() for array in kept if array() is not None] == []


@pytest.mark.parametrize("model", ["default", "hard"])
def test_nothing_is_computed_for_sampling_where_nothing_is_sampled(model, monkeypatch):
    captioner = Captioner.load(ROOT / "weights" / model, threads=1)
    calls: Counter[str] = Counter()
    monkeypatch.setattr(
        onnx_backend, "checksums", lambda pixels: calls.update(["checksums"]) or np.zeros(len(pixels), np.uint32)
    )
    list(captioner.stream(PICTURES[:1]))
    captioner(PICTURES[0])
    assert not calls
    captioner(PICTURES[0], sample=True)
    assert calls["checksums"] == 1
    captioner(PICTURES[0], hard_attention="sampled")
    assert calls["checksums"] == (2 if captioner.backend.hard else 1)


@pytest.mark.parametrize("k", [1, 10, 64])
def test_the_best_words_of_a_beam_are_found_without_sorting_the_vocabulary(k, monkeypatch):
    monkeypatch.setattr(np, "argpartition", lambda *args, **options: pytest.fail("a partial sort"))
    table = np.random.default_rng(k).integers(0, 50, (7, 500)).astype(np.float32)
    before = table.copy()
    found = beam_module.largest_columns(table, k)
    assert np.array_equal(found, np.argsort(-before, axis=1, kind="stable")[:, :k])
    assert np.array_equal(table, before)


def test_wider_beams_than_that_give_the_same_order():
    table = np.random.default_rng(0).permutation(7 * 500).reshape(7, 500).astype(np.float32)
    assert np.array_equal(beam_module.largest_columns(table, 80), np.argsort(-table, axis=1)[:, :80])


def test_the_8_bit_encoder_takes_several_pictures_at_a_time():
    backend = OnnxBackend.__new__(OnnxBackend)
    session = CountedSession(None)
    session.session = type("", (), {"run": lambda self, outputs, feeds: [np.zeros((len(feeds["pixels"]), 4, 3))]})()
    backend._encoder, backend._at_once, backend._annotation_shape = session, INT8_AT_ONCE, (4, 3)
    backend.rows = backend.cols = 2
    backend.encode(np.zeros((10, 8, 8, 3), np.uint8), keys=False)
    assert (session.runs, session.pictures) == (5, 10)


def test_only_graphs_that_are_used_are_verified_each_file_once(monkeypatch):
    verified: Counter[str] = Counter()
    real = verification.verify
    monkeypatch.setattr(
        "captioner.bundle.loading.verify",
        lambda folder, name, *rest: verified.update([name]) or real(folder, name, *rest),
    )
    exact = {"encoder.onnx", "begin.onnx", "decoder.onnx"}
    quick = {int8_graph(name) for name in exact}
    for int8, unused in ((False, quick), (True, exact), (None, set())):
        verified.clear()
        bundle = load_bundle(ROOT / "weights" / "default", int8=int8)
        assert set(verified.values()) == {1}
        assert set(bundle.manifest.files) - set(verified) == unused | {"README.md"}
    bundle = load_bundle(ROOT / "weights" / "default", int8=False)
    verified.clear()
    bundle.path("encoder.int8.onnx")
    assert verified == {"encoder.int8.onnx": 1}  # a file that is used after all


def test_a_large_jpeg_is_decoded_at_the_smallest_size_that_is_enough(tmp_path, monkeypatch):
    from PIL import Image

    sizes = []

    def squash(image, size):
        sizes.append(image.size)
        return np.zeros((size, size, 3), np.uint8)

    monkeypatch.setattr(reading, "squash", squash)
    for width, height in ((640, 480), (1152, 864), (2048, 1536), (4000, 3000)):
        Image.new("RGB", (width, height)).save(tmp_path / "picture.jpg")
        reading.load_for_model(tmp_path / "picture.jpg", 256)
    assert sizes == [(640, 480), (576, 432), (512, 384), (1000, 750)]


def test_the_first_caption_imports_nothing_that_it_does_not_need():
    code = (
        "import json, sys\n"
        "from captioner.cli import main\n"
        f"main(['caption', {PICTURES[0]!r}, '--model', {str(ROOT / 'weights' / 'default')!r}], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    unneeded = {"torch", "nltk", "onnx", "rich", "pydantic", "numpy.ma", "difflib", "importlib.metadata"}
    assert not modules & unneeded
    assert not [module for module in modules if module.startswith("captioner.scale")]


def test_the_command_line_has_the_settings_of_shards_without_importing_them():
    assert shard_options.SHARD_SIZE == shards.SHARD_SIZE
    assert shard_options.CAPTION_MEMBERS == shards.CAPTION_MEMBERS
    for ending in (".tar", ".parquet", ".txt", ".jsonl", ".jpg"):
        for path in (f"a{ending}", f"A{ending.upper()}", f"a{ending}/", f"https://host/a{ending}?version=1"):
            assert shard_options.names_shards([path], None) == shards.is_shard(path)
