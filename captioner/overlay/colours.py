"""The colour ramp of the maps, computed in CIELAB so that lightness grows evenly with attention.

From a dark blue over purple and orange to a light yellow. The even growth of lightness keeps the order
on a black-and-white printer and for every kind of colour blindness; the ends differ along blue to yellow,
the axis that the common kinds of colour blindness leave.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 256
DARK, LIGHT = 14.0, 95.0  # L* of the ends
HUE_FROM, HUE_TO = 285.0, 460.0  # degrees: blue to yellow (100), the way round over purple and orange
CHROMA = 62.0  # as much as fits in sRGB at each lightness is used, up to this
WHITE = np.array([0.95047, 1.0, 1.08883])  # D65
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab_to_rgb(lab: Floats) -> Floats:
    """sRGB of CIELAB colours, (..., 3); outside of 0..1 where the screen can't show the colour."""
    fy = (lab[..., 0] + 16) / 116
    f = np.stack([fy + lab[..., 1] / 500, fy, fy - lab[..., 2] / 200], axis=-1)
    xyz = WHITE * np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    linear = xyz @ np.linalg.inv(_TO_XYZ).T
    curved = 1.055 * np.clip(linear, 0.0031308, None) ** (1 / 2.4) - 0.055
    return np.asarray(np.where(linear <= 0.0031308, 12.92 * linear, curved))


def rgb_to_lab(rgb: Floats) -> Floats:
    """CIELAB of sRGB colours in 0..1, (..., 3)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = linear @ _TO_XYZ.T / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


@lru_cache(maxsize=1)
def ramp() -> NDArray[np.uint8]:
    """The colours of no attention to most attention, (256, 3)."""
    t = np.linspace(0, 1, STEPS)
    lightness = DARK + (LIGHT - DARK) * t
    hue = np.radians(HUE_FROM + (HUE_TO - HUE_FROM) * t)
    chroma = _smooth(np.minimum(CHROMA, _room(lightness, hue)))
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1)
    return np.rint(np.clip(lab_to_rgb(lab), 0, 1) * 255).astype(np.uint8)


def _room(lightness: Floats, hue: Floats) -> Floats:
    """The largest chroma that sRGB holds at each lightness and hue, by bisection."""
    low, high = np.zeros_like(lightness), np.full_like(lightness, 150.0)
    for _ in range(24):
        middle = (low + high) / 2
        rgb = lab_to_rgb(np.stack([lightness, middle * np.cos(hue), middle * np.sin(hue)], axis=-1))
        fits = ((rgb >= 0) & (rgb <= 1)).all(axis=-1)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low


def _smooth(chroma: Floats) -> Floats:
    """Without the corners of the gamut's edge, and never outside of it: a minimum, then a mean, of one width."""
    reach = len(chroma) // 10
    padded = np.pad(chroma, reach, mode="edge")
    least = np.array([padded[i : i + 2 * reach + 1].min() for i in range(len(chroma))])
    padded = np.pad(least, reach, mode="edge")
    return np.convolve(padded, np.full(2 * reach + 1, 1 / (2 * reach + 1)), mode="valid")
