"""A picture of four colours, for tests that ask where its corners went."""

from __future__ import annotations

import numpy as np

RED, GREEN, BLUE, WHITE = (220, 20, 30), (20, 200, 40), (30, 40, 210), (255, 255, 255)


def quadrants(width: int = 64, height: int = 48) -> np.ndarray:
    """Red and green above, blue and white below."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2], pixels[: height // 2, width // 2 :] = RED, GREEN
    pixels[height // 2 :, : width // 2], pixels[height // 2 :, width // 2 :] = BLUE, WHITE
    return pixels


def corners(image) -> list[tuple[int, ...]]:
    """The colours in the middle of the four quadrants."""
    pixels = np.asarray(image)
    h, w = pixels.shape[:2]
    return [tuple(pixels[y, x]) for y in (h // 4, 3 * h // 4) for x in (w // 4, 3 * w // 4)]


def near(colours, truth, tolerance: int = 12) -> bool:
    return bool(np.abs(np.array(colours, int) - np.array(truth, int)).max() <= tolerance)
