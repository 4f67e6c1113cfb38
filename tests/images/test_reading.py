"""Sources of pictures: all kinds give the same pixels; anything else is refused with an error that says why."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.errors import CaptionerError, UsageError
from captioner.images.frame import Frame
from captioner.images.reading import THUMBNAIL, is_url, load_for_model, read_image
from tests.images.quadrants import quadrants


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A PNG on its side: no loss, and an orientation that must not be forgotten."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(quadrants()).save(tmp_path / "photo.png", exif=exif)
    return tmp_path / "photo.png"


def test_a_path_bytes_an_open_file_and_a_pillow_image_are_one_picture(photo):
    expected = load_for_model(photo, 32)[1]
    data = photo.read_bytes()
    with photo.open("rb") as file, Image.open(photo) as image:
        sources = [str(photo), data, bytearray(data), memoryview(data), io.BytesIO(data), file, image]
        for source in sources:
            picture, pixels = load_for_model(source, 32)
            assert np.array_equal(pixels, expected)
            assert picture.frame == Frame(48, 64, 6)
        assert not file.closed


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("kind", ["uint8", "float32", "float64", "float16", "bfloat16"])
def test_tensors_are_pictures(layout, kind):
    torch = pytest.importorskip("torch")
    pixels = quadrants()
    tensor = torch.from_numpy(pixels)
    if kind != "uint8":
        tensor = (tensor.double() / 255).to(getattr(torch, kind)).requires_grad_()
    if layout == "CHW":
        tensor = tensor.permute(2, 0, 1)
    image, frame = read_image(tensor)
    assert frame == Frame(64, 48)
    tolerance = 1 if kind == "bfloat16" else 0
    assert np.abs(np.asarray(image).astype(int) - pixels).max() <= tolerance


def test_reading_imports_no_torch(photo):
    """In a fresh interpreter, because other tests import torch."""
    import subprocess

    code = "import sys; from captioner.images.reading import read_image; read_image(sys.argv[1]); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(photo)], check=True)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/cat.jpg", "http:/example.com/cat.jpg", "s3://bucket/cat.jpg", "data:image/png;base64,AA"],
)
def test_a_url_is_refused_with_a_sentence(url):
    with pytest.raises(UsageError, match="URLs are not opened; download the picture first"):
        read_image(url)


def test_names_that_only_resemble_urls_are_paths():
    for name in ("c:/photos/cat.jpg", "photos/a:b.jpg", "data:set.jpg", "https.jpg"):
        assert not is_url(name)


@pytest.mark.parametrize("source", [None, 7, 3.5, object(), {"path": "a.jpg"}, ["a.jpg"]])
def test_anything_else_is_refused_with_the_kinds_that_work(source):
    with pytest.raises(UsageError, match="is not a picture; pass a path, bytes, a file"):
        read_image(source)


def test_a_text_file_and_a_file_at_its_end_are_told(photo):
    with pytest.raises(UsageError, match="open it with 'rb'"):
        read_image(io.StringIO("text"))  # type: ignore[arg-type]
    file = io.BytesIO(photo.read_bytes())
    read_image(file)
    with pytest.raises(CaptionerError, match="empty or was read to its end"):
        read_image(file)


class Broken:
    name = "broken.jpg"

    def read(self) -> bytes:
        raise RuntimeError("the line is dead")


def test_exceptions_of_pillow_and_of_files_become_sentences(photo):
    closed = Image.open(photo)
    closed.close()
    cut = photo.read_bytes()[:100]
    for source in (closed, cut, Broken(), np.array(["a"]), np.zeros((2, 2), object), np.zeros((1, 2, 3, 4))):
        with pytest.raises(CaptionerError):
            read_image(source)  # type: ignore[arg-type]
    with pytest.raises(CaptionerError, match=r"broken\.jpg: cannot be read \(RuntimeError: the line is dead\)"):
        read_image(Broken())  # type: ignore[arg-type]


def test_a_pillow_image_of_the_caller_is_left_as_it_was(tmp_path):
    Image.fromarray(quadrants(2000, 1000)).save(tmp_path / "mine.jpg")
    with Image.open(tmp_path / "mine.jpg") as mine:
        picture, _ = load_for_model(mine, 64, keep=True)
        assert mine.size == (2000, 1000)
        assert picture.open().size == (2000, 1000)


def test_of_a_source_without_a_file_a_thumbnail_is_kept_unless_the_picture_is_asked_for():
    pixels = quadrants(1600, 1200)
    picture, _ = load_for_model(pixels, 64)
    assert picture.open().size == (THUMBNAIL, THUMBNAIL * 3 // 4)
    assert picture.frame == Frame(1600, 1200)
    kept, _ = load_for_model(pixels, 64, keep=True)
    pixels[:] = 0  # the caller may use the array again
    assert np.array_equal(np.asarray(kept.open()), quadrants(1600, 1200))


def test_a_picture_from_a_file_is_opened_again_at_full_size(tmp_path):
    Image.fromarray(quadrants(1600, 1200)).save(tmp_path / "large.jpg")
    picture, _ = load_for_model(tmp_path / "large.jpg", 64)
    assert picture.image is None and picture.open().size == (1600, 1200)


def test_pictures_are_named_by_their_source(photo):
    with photo.open("rb") as file, Image.open(photo) as image:
        names = [load_for_model(source, 8)[0].name for source in (photo, file, image, photo.read_bytes(), quadrants())]
    assert names == [str(photo), str(photo), str(photo), "image", "image"]
