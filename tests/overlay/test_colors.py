import numpy as np
import pytest
from PIL import Image

from captioner.overlay import painting
from captioner.overlay.colors import COLOR_MAP
from captioner.overlay.painting import Style

# How dichromats see a color in linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lightness(linear_rgb: np.ndarray) -> np.ndarray:
    """CIE L*, from the luminance of ITU-R BT.709."""
    y = np.clip(linear_rgb, 0, 1) @ [0.2126, 0.7152, 0.0722]
    return np.where(y > 216 / 24389, 116 * np.cbrt(y) - 16, y * 24389 / 27)


# Magma at ten even steps, as viridisLite publishes it.
MAGMA_10 = ("000004", "180f3e", "451077", "721f81", "9f2f7f", "cd4071", "f1605d", "fd9567", "fec98d", "fcfdbf")


def test_the_color_map_is_magma():
    steps = np.linspace(0, 255, 10).round().astype(int)
    published = np.array([list(bytes.fromhex(color)) for color in MAGMA_10])
    assert COLOR_MAP.shape == (256, 3)
    assert (
        np.abs(COLOR_MAP[steps].astype(int) - published).max() <= 2
    )  # viridisLite interpolates between two of the 256


def test_lightness_grows_from_dark_to_light_without_a_flat_part():
    seen = lightness(linear(COLOR_MAP / 255))
    steps = np.diff(seen[::15])
    assert steps.min() > 2.5
    assert seen[0] < 1 and seen[-1] > 95


@pytest.mark.parametrize("kind", BLINDNESS)
def test_lightness_keeps_its_order_with_every_kind_of_color_blindness(kind):
    seen = lightness(linear(COLOR_MAP / 255) @ np.array(BLINDNESS[kind]).T)
    steps = np.diff(seen[::15])
    assert steps.min() > 1.5


def test_lightness_keeps_its_order_in_black_and_white():
    grey = np.asarray(Image.fromarray(COLOR_MAP[None]).convert("L")).astype(int)[0]
    assert np.diff(grey[::15]).min() > 3


@pytest.mark.parametrize("grey", [40, 140, 220])
def test_over_a_picture_more_attention_never_looks_clearly_darker(grey):
    levels = np.linspace(0, 1, 256, dtype=np.float32)[None]
    painted = painting.paint(Image.new("RGB", (256, 1), (grey, grey, grey)), levels, 1.0, Style("heat", grid=True))
    seen = lightness(linear(np.asarray(painted)[0] / 255))
    assert (np.maximum.accumulate(seen) - seen).max() < 2  # a difference of 2 in L* is barely visible
    assert seen[-1] > seen[0] + 30
