"""A synthetic set: coloured shapes in positions, a few true sentences about each picture, boxes of the objects.

Everything follows from the seed. In one picture all shapes differ and all colours differ, so that each
noun and each colour names one object, and has one box where attention should look. Objects are named
left to right, or top to bottom: which is named first is in the picture, not in the language.
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

SHAPES = ("circle", "square", "triangle", "star", "cross")
COLOURS = {
    "red": (214, 40, 40),
    "green": (44, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (240, 215, 30),
    "purple": (140, 50, 170),
    "orange": (240, 135, 20),
}
RADII = {"small": (0.10, 0.12), "large": (0.18, 0.21)}  # of the picture's side
SPLITS = ("train", "val", "test")
_SUPERSAMPLING = 3  # shapes are drawn this much larger and averaged down, for smooth edges
_MARGIN = 0.02  # between objects, and to the border, of the picture's side
_CLEARLY = 0.15  # how much farther a neighbour lies along the line than across it, of the picture's side


@dataclass(frozen=True)
class Shape:
    """An object of a scene; positions and radius as shares of the picture's side."""

    kind: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    turn: float  # radians


@dataclass(frozen=True)
class Scene:
    """Shapes in the order they are named, and what relates each to the next (or where the only one is)."""

    shapes: tuple[Shape, ...]
    relation: str

    def sentences(self) -> tuple[str, ...]:
        """The same thing said in four ways: with and without the sizes, with and without an opening."""
        plain = self._phrase(sized=False)
        sized = self._phrase(sized=True)
        return (plain, sized, f"there is {plain}", f"there is {sized}")

    def _phrase(self, *, sized: bool) -> str:
        names = [f"a {s.size} {s.colour} {s.kind}" if sized else f"a {s.colour} {s.kind}" for s in self.shapes]
        if len(names) == 1:
            return f"{names[0]} {self.relation}"
        return f" {self.relation} ".join(names)


def compose(random: np.random.Generator, most: int = 2) -> Scene:
    """A scene of one to `most` shapes whose positions and relations can't be doubted."""
    count = int(random.integers(1, most + 1))
    kinds = [SHAPES[i] for i in random.permutation(len(SHAPES))[:count]]
    colours = [tuple(COLOURS)[i] for i in random.permutation(len(COLOURS))[:count]]
    while True:
        sizes = [("small", "large")[i] for i in random.integers(0, 2, count)]
        radii = [float(random.uniform(*RADII[size])) for size in sizes]
        if sum(radii) * 2 + _MARGIN * (count + 1) < 1:  # three large ones find no room in a row
            break
    positions, relation = _alone(random, radii[0]) if count == 1 else _in_line(random, radii)
    turns = random.uniform(-0.2, 0.2, count)
    shapes = (
        Shape(kind, colour, size, x, y, radius, float(turn))
        for kind, colour, size, (x, y), radius, turn in zip(kinds, colours, sizes, positions, radii, turns, strict=True)
    )
    return Scene(tuple(shapes), relation)


_Positions = list[tuple[float, float]]


def _alone(random: np.random.Generator, radius: float) -> tuple[_Positions, str]:
    """At one of five positions, well apart from each other."""
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
    """From left to right or from top to bottom; each step goes clearly more along the line than across it."""
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
    """The picture and the boxes of its shapes, in the order they are named, from the pixels drawn."""
    picture = _background(size, random)
    boxes = []
    for shape in scene.shapes:
        large = size * _SUPERSAMPLING
        stencil = Image.new("L", (large, large), 0)
        _OUTLINES[shape.kind](ImageDraw.Draw(stencil), shape, large)
        mask = stencil.reduce(_SUPERSAMPLING)
        boxes.append(_extent(shape.kind, np.asarray(mask) >= 128))
        red, green, blue = COLOURS[shape.colour] + random.integers(-12, 13, 3)
        picture.paste((int(red), int(green), int(blue)), mask=mask)
    return picture, tuple(boxes)


def _extent(label: str, covered: NDArray[np.bool_]) -> Box:
    columns, rows = np.flatnonzero(covered.any(axis=0)), np.flatnonzero(covered.any(axis=1))
    return Box(label, float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))


def _background(size: int, random: np.random.Generator) -> Image.Image:
    """Nearly grey, so that it is never one of the colours: plain, shaded from side to side, or noisy."""
    grey = random.uniform(40, 225)
    tint = random.uniform(-10, 10, 3)
    pixels = np.full((size, size, 3), grey + tint, dtype=np.float32)
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
    """Draws the corners, given as (angle in turns from the top, share of the radius)."""

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
    # Corners a little outside the radius: the sides, which the eye goes by, then match the other shapes.
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
    """Writes images/, captions_SPLIT.json and instances_SPLIT.json; gives the number of images a split.

    A tenth of the images each is for val and test. The same seed gives the same pictures and sentences,
    and picture i is the same for any number of images.
    """
    if images < len(SPLITS):
        raise UsageError(f"--images {images}: at least {len(SPLITS)} are needed, one for each split")
    if not 32 <= size <= 1024:
        raise UsageError(f"--size {size}: the side of a picture is 32 to 1024 pixels")
    if not 1 <= most <= 3:
        raise UsageError(f"--objects {most}: a picture has 1 to 3 objects at most")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; give a folder to write to")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise UsageError(f"{folder}: is not empty; choose another folder, or give --overwrite")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    held = max(1, images // 10)
    counts = {"train": images - 2 * held, "val": held, "test": held}
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
    # The listings come last: a folder that was interrupted has none, and can't be taken for whole.
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
                "attributes": {"colour": shape.colour, "size": shape.size},
            }
        )
