"""Small files that make a reader allocate gigabytes or compute for minutes, and the child process that measures it."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

READ = """
import json, pathlib, re, sys, time
from captioner.errors import CaptionerError
from captioner.images.reading import load_for_model
import onnxruntime, numpy  # what a captioning process has loaded anyway
from concurrent.futures import ThreadPoolExecutor

def read(path):
    try:
        load_for_model(path, 256)
    except CaptionerError as error:
        return str(error)
    return None

def peak():  # kilobytes
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

pathlib.Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
before, start = peak(), time.process_time()
readers, paths = int(sys.argv[1]), sys.argv[2:]
with ThreadPoolExecutor(readers) as pool:
    problems = list(pool.map(read, paths * readers))
print(json.dumps([(peak() - before) / 1000, time.process_time() - start, problems[0]]))
"""


def measure(*paths: Path, readers: int = 1, timeout: float = 120) -> tuple[float, float, str | None]:
    """Megabytes and processor seconds that a new process takes to read pictures, each as often as it has readers.

    The error is that of the first picture.
    """
    done = subprocess.run(
        [sys.executable, "-c", READ, str(readers), *map(str, paths)], capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        names = ", ".join(path.name for path in paths)
        raise AssertionError(f"the reader of {names} ended with {done.returncode}: {done.stderr[-500:]}")
    megabytes, seconds, problem = json.loads(done.stdout)
    return float(megabytes), float(seconds), problem


def png(width: int, height: int, *, bits: int = 8, color: int = 2, transparent: bool = False) -> bytes:
    """A PNG of zeros. `color` is PNG's type: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    packer = zlib.compressobj(1)
    row = b"\0" * (1 + width * channels * bits // 8)
    rows = max(1, (1 << 22) // len(row))
    data = b"".join(
        [packer.compress(row * min(rows, height - start)) for start in range(0, height, rows)] + [packer.flush()]
    )
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))]
    if color == 3:
        chunks.append((b"PLTE", b"\0\0\0"))
    if transparent:
        chunks.append((b"tRNS", b"\0" if color == 3 else b"\0\1" * channels))
    chunks += [(b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def webp(width: int, height: int) -> bytes:
    """A canvas of any size with one frame of a single pixel."""
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1)).save(buffer, "WEBP", lossless=True)
    frame = buffer.getvalue()[12:]

    def chunk(kind: bytes, content: bytes) -> bytes:
        return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)

    def three(number: int) -> bytes:
        return struct.pack("<I", number)[:3]

    body = chunk(b"VP8X", b"\x02\0\0\0" + three(width - 1) + three(height - 1))
    body += chunk(b"ANIM", b"\0" * 6)
    body += chunk(b"ANMF", b"\0" * 12 + three(100) + b"\0" + frame)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def whole_webp(side: int) -> bytes:
    return _saved(Image.new("RGB", (side, side), (7, 8, 9)), "WEBP", lossless=True, method=0, quality=0)


def jpeg(width: int, height: int, *, progressive: bool = False) -> bytes:
    return _saved(Image.new("RGB", (width, height), (90, 20, 200)), "JPEG", progressive=progressive, quality=30)


def many_scans(scans: int, side: int = 2000) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    picture = jpeg(side, side, progressive=True)
    last = picture[picture.rindex(b"\xff\xda") : -2]
    return picture[:-2] + last * scans + picture[-2:]


def many_segments(megabytes: int) -> bytes:
    """A JPEG with megabytes of EXIF segments, which Pillow joins one by one."""
    segment = b"\xff\xe1" + struct.pack(">H", 65535) + b"Exif\0\0" + b"\0" * (65533 - 6)
    picture = jpeg(64, 64)
    return picture[:2] + segment * (megabytes * 1_000_000 // len(segment)) + picture[2:]


def fill_bytes(megabytes: int) -> bytes:
    picture = jpeg(64, 64)
    return picture[:2] + b"\xff" * (megabytes * 1_000_000) + picture[2:]


def ppm_comment(megabytes: int) -> bytes:
    return b"P6\n#" + b"x" * (megabytes * 1_000_000) + b"\n2 2\n255\n" + b"\0" * 12


def gif_comments(megabytes: int) -> bytes:
    """A GIF with very many comments, which Pillow joins one by one."""
    buffer = _saved(Image.new("P", (8, 8)), "GIF")
    comment = b"\x21\xfe\xff" + b"c" * 255 + b"\0"
    start = 13 + (3 << (buffer[10] & 7) + 1 if buffer[10] & 0x80 else 0)
    return buffer[:start] + comment * (megabytes * 1_000_000 // len(comment)) + buffer[start:]


def png_chunks(count: int) -> bytes:
    """A PNG with very many empty chunks before its pixels."""
    picture = png(8, 8)
    chunk = struct.pack(">I", 0) + b"teSt" + struct.pack(">I", zlib.crc32(b"teSt"))
    return picture[:33] + chunk * count + picture[33:]


def tiff(width: int, height: int, *, tile: tuple[int, int] | None = None, bits: int = 8) -> bytes:
    """A TIFF of zeros, deflated: in one strip, or with one tile of any size."""
    data = zlib.compress(b"\0" * min(width * height * bits // 8, 300_000_000), 1)
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, bits),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
    ]
    if tile:
        entries += [(322, 4, 1, tile[0]), (323, 4, 1, tile[1]), (324, 4, 1, 8), (325, 4, 1, len(data))]
    else:
        entries += [(273, 4, 1, 8), (278, 4, 1, height), (279, 4, 1, len(data))]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory + b"\0" * 4


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + b"\0" * 64
    )


def gif(width: int, height: int) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0x80, 0, 0)
        + b"\0" * 6
        + (b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\2\2\x44\1\0;")
    )


def avif(side: int) -> bytes:
    return _saved(Image.new("RGB", (side, side), (90, 20, 200)), "AVIF", speed=10, quality=1)


# Every bomb takes more than the limits allow, or is just below them. `SMALL` are made in less than a second.
SMALL: dict[str, Callable[[], bytes]] = {
    "canvas.webp": lambda: webp(14_000, 14_000),
    "tall.png": lambda: png(1, 100_000_000, color=0),
    "wide.png": lambda: png(100_000_000, 1, color=0),
    "deep.png": lambda: png(6000, 6000, bits=16, color=0),
    "alpha.png": lambda: png(5000, 5000, color=6),
    "transparent.png": lambda: png(5000, 5000, color=2, transparent=True),
    "palette.png": lambda: png(6000, 6000, color=3, transparent=True),
    "scans.jpg": lambda: many_scans(20_000),
    "fill.jpg": lambda: fill_bytes(20),
    "comment.ppm": lambda: ppm_comment(50),
    "tile.tif": lambda: tiff(100, 100, tile=(40_000, 40_000)),
    "strip.tif": lambda: tiff(9000, 9000),
    "frame.gif": lambda: gif(14_000, 14_000),
    "huge.bmp": lambda: bmp(14_000, 14_000),
}
LARGE: dict[str, Callable[[], bytes]] = {
    "tall-rgb.png": lambda: png(1, 200_000_000),
    "plain.png": lambda: png(11_000, 11_000),
    "plain-too-large.png": lambda: png(14_000, 14_000),
    "deep-too-large.png": lambda: png(14_000, 14_000, bits=16, color=0),
    "alpha-too-large.png": lambda: png(14_000, 14_000, color=6),
    "whole.webp": lambda: whole_webp(3900),
    "whole-too-large.webp": lambda: whole_webp(12_000),
    "honest.jpg": lambda: jpeg(14_000, 14_000),
    "progressive.jpg": lambda: jpeg(8500, 8500, progressive=True),
    "progressive-too-large.jpg": lambda: jpeg(14_000, 14_000, progressive=True),
    "segments.jpg": lambda: many_segments(131),
    "comments.gif": lambda: gif_comments(100),
    "chunks.png": lambda: png_chunks(5_000_000),
    "deep.tif": lambda: tiff(6000, 6000, bits=16),
    "large.avif": lambda: avif(4400),
    "large-frame.gif": lambda: gif(6500, 6500),
}


# Each is within the memory limit. Their blocks have different sizes, and add up if the C library keeps freed ones.
MIXED = ("alpha.png", "deep.png", "palette.png", "transparent.png", "wide.png", "strip.tif")


def _saved(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def write_mixed(folder: Path) -> list[Path]:
    return list(write(folder, {name: SMALL[name] for name in MIXED}))


def write(folder: Path, makers: dict[str, Callable[[], bytes]]) -> Iterator[Path]:
    for name, make in makers.items():
        (folder / name).write_bytes(make())
        yield folder / name
