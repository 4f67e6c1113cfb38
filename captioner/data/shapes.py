"""A synthetic data set: colored shapes, a few true sentences per picture, and boxes of the objects.

The seed determines everything. Within a picture, all shapes differ and all colors differ. So each noun and each color
names one object, with one box where attention should be. Objects are named from left to right or from top to bottom:
the picture decides which comes first, not the language.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from captioner.data.caption_set import Box
from captioner.errors import UsageError
from captioner.files.existing import check_unoccupied

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS = {
    "red": (214, 40, 40),
    "green": (44, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 215, 30),
    "purple": (140, 50, 170),
    "orange": (240, 135, 20),
}
RADII = {"small": (0.10, 0.12), "large": (0.18, 0.21)}  # relative to the side of the picture
SPLITS = ("train", "val", "test")
_SUPERSAMPLING = 3  # shapes are drawn this much larger and averaged down, for smooth edges
_MARGIN = 0.02  # between objects and to the border, relative to the side of the picture
_CLEARLY = 0.15  # how much farther a neighbor is along the line than across it, same unit


@dataclass(frozen=True)
class Shape:
    """An object of a scene. Position and radius are relative to the side of the picture."""

    kind: str
    color: str
    size: str
    x: float
    y: float
    radius: float
    turn: float  # radians


@dataclass(frozen=True)
class Scene:
    """Shapes in the order they are named, and the relation of each to the next. A single shape has a position."""

    shapes: tuple[Shape, ...]
    relation: str

    def sentences(self) -> tuple[str, ...]:
        """Four sentences: with and without sizes, with and without "there is"."""
        plain = self._phrase(sized=False)
        sized = self._phrase(sized=True)
        return (plain, sized, f"there is {plain}", f"there is {sized}")

    def _phrase(self, *, sized: bool) -> str:
        names = [f"a {s.size} {s.color} {s.kind}" if sized else f"a {s.color} {s.kind}" for s in self.shapes]
        if len(names) == 1:
            return f"{names[0]} {self.relation}"
        return f" {self.relation} ".join(names)


def compose(random: np.random.Generator, most: int = 2) -> Scene:
    """A scene of one to `most` shapes with unambiguous positions and relations."""
    count = int(random.integers(1, most + 1))
    kinds = [SHAPES[i] for i in random.permutation(len(SHAPES))[:count]]
    colors = [tuple(COLORS)[i] for i in random.permutation(len(COLORS))[:count]]
    while True:
        sizes = [("small", "large")[i] for i in random.integers(0, 2, count)]
        radii = [float(random.uniform(*RADII[size])) for size in sizes]
        if sum(radii) * 2 + _MARGIN * (count + 1) < 1:  # three large shapes do not fit into a row
            break
    positions, relation = _alone(random, radii[0]) if count == 1 else _in_line(random, radii)
    turns = random.uniform(-0.2, 0.2, count)
    shapes = (
        Shape(kind, color, size, x, y, radius, float(turn))
        for kind, color, size, (x, y), radius, turn in zip(kinds, colors, sizes, positions, radii, turns, strict=True)
    )
    return Scene(tuple(shapes), relation)


_Positions = list[tuple[float, float]]


def _alone(random: np.random.Generator, radius: float) -> tuple[_Positions, str]:
    """One of five positions that are far apart."""
    near, far = random.uniform(-0.06, 0.06), random.uniform(0.16, 0.5 - radius - _MARGIN)
    positions = {
        "on the left": (-far, near),
        "on the right": (far, near),
        "at the top": (near, -far),
        "at the bottom": (near, far),
        "in the middle": (near, random.uniform(-0.06, 0.06)),
    }
    relation = tuple(positions)[int(random.integers(len(positions)))]
    x, y = positions[relation]
    return [(0.5 + x, 0.5 + y)], relation


def _in_line(random: np.random.Generator, radii: list[float]) -> tuple[_Positions, str]:
    """From left to right or from top to bottom. Each step is clearly longer along the line than across it."""
    free = 1 - 2 * sum(radii) - _MARGIN * (len(radii) + 1)
    gaps = random.dirichlet(np.ones(len(radii) + 1)) * free  # before, between and after the shapes
    along, across = gaps[0] + _MARGIN + radii[0], 0.0
    positions: _Positions = []
    for i, radius in enumerate(radii):
        low, high = radius + _MARGIN, 1 - radius - _MARGIN
        if i:
            step = radii[i - 1] + _MARGIN + gaps[i] + radius
            low, high = max(low, across - (step - _CLEARLY)), min(high, across + (step - _CLEARLY))
            along += step
        across = random.uniform(low, high)
        positions.append((float(along), float(across)))
    if random.integers(2):
        return positions, "left of"
    return [(x, y) for y, x in positions], "above"


def draw(scene: Scene, size: int, random: np.random.Generator) -> tuple[Image.Image, tuple[Box, ...]]:
    """The picture and the boxes of its shapes, measured on the drawn pixels, in the order they are named."""
    picture = _background(size, random)
    boxes = []
    for shape in scene.shapes:
        large = size * _SUPERSAMPLING
        stencil = Image.new("L", (large, large), 0)
        _OUTLINES[shape.kind](ImageDraw.Draw(stencil), shape, large)
        mask = stencil.reduce(_SUPERSAMPLING)
        boxes.append(_extent(shape.kind, np.asarray(mask) >= 128))
        red, green, blue = COLORS[shape.color] + random.integers(-12, 13, 3)
        picture.paste((int(red), int(green), int(blue)), mask=mask)
    return picture, tuple(boxes)


def _extent(label: str, covered: NDArray[np.bool_]) -> Box:
    columns, rows = np.flatnonzero(covered.any(axis=0)), np.flatnonzero(covered.any(axis=1))
    return Box(label, float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))


def _background(size: int, random: np.random.Generator) -> Image.Image:
    """Nearly gray, so that it is never one of the colors: plain, a gradient, or noise."""
    gray = random.uniform(40, 225)
    tint = random.uniform(-10, 10, 3)
    pixels = np.full((size, size, 3), gray + tint, dtype=np.float32)
    kind = int(random.integers(3))
    if kind == 1:
        ramp = np.linspace(-25, 25, size, dtype=np.float32)
        pixels += ramp[:, None, None] if random.integers(2) else ramp[None, :, None]
    elif kind == 2:
        pixels += random.normal(0, random.uniform(4, 16), (size, size, 1)).astype(np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _circle(draw: ImageDraw.ImageDraw, shape: Shape, side: int) -> None:
    x, y, r = shape.x * side, shape.y * side, shape.radius * side
    draw.ellipse((x - r, y - r, x + r, y + r), fill=255)


def _polygon(*corners: tuple[float, float]) -> Callable[[ImageDraw.ImageDraw, Shape, int], None]:
    """Draws a polygon. Corners are (angle in turns from the top, distance relative to the radius)."""

    def outline(draw: ImageDraw.ImageDraw, shape: Shape, side: int) -> None:
        points = []
        for turns, share in corners:
            angle = 2 * math.pi * turns + shape.turn - math.pi / 2
            length = shape.radius * share * side
            points.append((shape.x * side + length * math.cos(angle), shape.y * side + length * math.sin(angle)))
        draw.polygon(points, fill=255)

    return outline


_ARM = math.atan(0.36) / (2 * math.pi)  # half the width of a cross's arm, as a share of its length
_OUTLINES: dict[str, Callable[[ImageDraw.ImageDraw, Shape, int], None]] = {
    "circle": _circle,
    # The corners are outside the radius so that the square looks as large as the other shapes.
    "square": _polygon(*((0.125 + 0.25 * i, 1.2) for i in range(4))),
    "triangle": _polygon(*((i / 3, 1.0) for i in range(3))),
    "star": _polygon(*((i / 10, 0.42 if i % 2 else 1.0) for i in range(10))),
    "cross": _polygon(
        *(
            corner
            for i in range(4)
            for corner in ((i / 4 - _ARM, 1.0), (i / 4 + _ARM, 1.0), (i / 4 + 0.125, 0.36 * math.sqrt(2)))
        )
    ),
}


def write_shapes(
    folder: Path,
    images: int,
    *,
    seed: int = 0,
    size: int = 96,
    most: int = 2,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, int]:
    """Write images/, captions_SPLIT.json and instances_SPLIT.json; return the number of images per split.

    val and test get a tenth of the images each. The same seed gives the same pictures and sentences. Picture i does not
    depend on the number of images.
    """
    if images < len(SPLITS):
        raise UsageError(f"--images {images}: give at least {len(SPLITS)}, one per split")
    if not 32 <= size <= 1024:
        raise UsageError(f"--size {size}: give 32 to 1024 pixels")
    if not 1 <= most <= 3:
        raise UsageError(f"--objects {most}: give 1, 2 or 3")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: this is a file; give a folder")
    check_unoccupied(folder, "folder", overwrite=overwrite)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    tenth = max(1, images // 10)
    counts = {"train": images - 2 * tenth, "val": tenth, "test": tenth}
    files = {split: _empty_files(seed, size) for split in SPLITS}
    order = [split for split in SPLITS for _ in range(counts[split])]
    for number, split in enumerate(order, 1):
        random = np.random.default_rng([seed, number])
        scene = compose(random, most)
        picture, boxes = draw(scene, size, random)
        name = f"shapes_{number:06d}.png"
        picture.save(folder / "images" / name, compress_level=1)
        _record(files[split], number, name, size, scene, boxes)
        progress(number)
    # The caption files are written last, so that an interrupted folder is not mistaken for a complete one.
    for split, (captions, instances) in files.items():
        for kind, content in (("captions", captions), ("instances", instances)):
            text = json.dumps(content, separators=(",", ":"))
            (folder / f"{kind}_{split}.json").write_text(text + "\n", encoding="utf-8")
    return counts


_File = dict[str, Any]


def _empty_files(seed: int, size: int) -> tuple[_File, _File]:
    info = {"description": f"shapes drawn by captioner, seed {seed}, {size} px", "version": "1"}
    categories = [{"id": i, "name": name, "supercategory": "shape"} for i, name in enumerate(SHAPES, 1)]
    return (
        {"info": info, "images": [], "annotations": []},
        {"info": info, "images": [], "annotations": [], "categories": categories},
    )


def _record(
    files: tuple[_File, _File], number: int, name: str, size: int, scene: Scene, boxes: tuple[Box, ...]
) -> None:
    captions, instances = files
    for file in files:
        file["images"].append({"id": number, "file_name": name, "width": size, "height": size})
    for i, sentence in enumerate(scene.sentences()):
        captions["annotations"].append({"id": number * 10 + i, "image_id": number, "caption": sentence})
    for i, (shape, box) in enumerate(zip(scene.shapes, boxes, strict=True)):
        width, height = box.right - box.left, box.bottom - box.top
        instances["annotations"].append(
            {
                "id": number * 10 + i,
                "image_id": number,
                "category_id": SHAPES.index(shape.kind) + 1,
                "bbox": [box.left, box.top, width, height],
                "area": width * height,
                "iscrowd": 0,
                "attributes": {"colour": shape.color, "size": shape.size},
            }
        )
