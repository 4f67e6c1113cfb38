import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from captioner.caption import Caption, Word
from captioner.images.frame import Frame
from captioner.images.reading import load_for_model
from captioner.overlay import geometry, words
from captioner.overlay.painting import Style
from tests.overlay.handmade_captions import blob, flat, one_cell

GRIDS = [(7, 7), (8, 8), (14, 14), (5, 9)]
SIZES = [(427, 640), (640, 427), (501, 333), (97, 211), (256, 256)]

# How a camera stores an upright picture with each EXIF orientation: the inverse of what a viewer does.
STORE = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def bounds(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the true part; right and bottom are exclusive."""
    ys, xs = np.nonzero(mask)
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


@pytest.mark.parametrize("rows, cols", GRIDS)
@pytest.mark.parametrize("width, height", SIZES)
@pytest.mark.parametrize("grid", [True, False])
def test_weight_in_one_cell_is_drawn_on_the_rectangle_of_that_cell(rows, cols, width, height, grid):
    for row, col in ((0, 0), (rows - 1, cols - 1), (rows // 2, cols // 3)):
        density = geometry.project(geometry.density(one_cell(row, col, rows, cols)), width, height, grid=grid)
        # Smooth maps fall to half exactly at the cell's edge, along the lines through its centre.
        middle = np.zeros((height, width), bool)
        middle[int((row + 0.5) * height / rows), :] = True
        middle[:, int((col + 0.5) * width / cols)] = True
        lit = (density >= rows * cols / 2) & (middle | grid)
        expected = (col * width / cols, row * height / rows, (col + 1) * width / cols, (row + 1) * height / rows)
        assert np.abs(np.subtract(bounds(lit), expected)).max() <= 1


@pytest.mark.parametrize("orientation", STORE)
@pytest.mark.parametrize("width, height", [(160, 90), (91, 163)])
def test_a_map_covers_the_same_object_in_files_of_every_orientation(tmp_path, orientation, width, height):
    rows, cols, row, col = 5, 4, 1, 2
    left, top, right, bottom = (
        round(col * width / cols),
        round(row * height / rows),
        round((col + 1) * width / cols),
        round((row + 1) * height / rows),
    )
    upright = Image.new("RGB", (width, height), (255, 255, 255))
    ImageDraw.Draw(upright).rectangle((left, top, right - 1, bottom - 1), fill=(0, 0, 0))
    turn = STORE[orientation]
    stored = upright if turn is None else upright.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "picture.png", exif=exif)

    picture, _ = load_for_model(tmp_path / "picture.png", 64)
    caption = Caption((Word("it", 0.0, one_cell(row, col, rows, cols)),), None, 0.0, picture)
    (painted,) = words(caption, Style("heat", grid=True, opacity=1.0))
    assert painted.size == (width, height)
    light = np.asarray(painted.convert("L")) > 200  # the light end of the color map hides the black rectangle
    assert np.abs(np.subtract(bounds(light), (left, top, right, bottom))).max() <= 1

    # The same rectangle in the pixels of the file, found without the code under test.
    black = np.asarray(stored.convert("L")) < 128
    there = picture.frame.stored_box(picture.frame.cell(row, col, rows, cols))
    assert np.abs(np.subtract(bounds(black), there)).max() <= 1


@settings(deadline=None)  # the machine may be busy
@given(
    st.integers(1, 15), st.integers(1, 15), st.integers(1, 80), st.integers(1, 80), st.booleans(), st.integers(0, 99)
)
def test_no_pixel_exceeds_the_values_of_the_cells(rows, cols, width, height, grid, seed):
    alpha = np.random.default_rng(seed).dirichlet(np.ones(rows * cols)).reshape(rows, cols).astype(np.float32)
    density = geometry.project(geometry.density(alpha), width, height, grid=grid)
    assert density.shape == (height, width)
    assert density.min() >= alpha.min() * alpha.size * (1 - 1e-5)
    assert density.max() <= alpha.max() * alpha.size * (1 + 1e-5)


@pytest.mark.parametrize("grid", [True, False])
def test_an_even_spread_is_one_everywhere(grid):
    np.testing.assert_allclose(geometry.project(geometry.density(flat(7, 9)), 133, 71, grid=grid), 1, rtol=1e-5)


def test_the_centre_of_a_cell_shows_the_cells_value():
    alpha = blob(2, 3, 5, 7)
    density = geometry.project(
        geometry.density(alpha), 7 * 11, 5 * 11
    )  # an odd number of pixels per cell, so one is at the centre
    np.testing.assert_allclose(density[5::11, 5::11], alpha * 35, rtol=1e-4)


def test_smooth_maps_have_no_creases():
    line = geometry.project(blob(0, 3, 1, 7), 700, 1)[0]
    slopes = np.diff(line)
    # With straight lines between the centres, the slope would change abruptly at each centre.
    assert np.abs(np.diff(slopes)).max() < 0.1 * np.abs(slopes).max()


def test_working_in_strips_changes_nothing(monkeypatch):
    alpha = blob(2, 3, 6, 8)
    whole = geometry.project(alpha, 90, 61)
    monkeypatch.setattr(geometry, "_STRIP", 90 * 7)
    assert len(list(geometry.strips(alpha, 90, 61))) == 9
    np.testing.assert_array_equal(geometry.project(alpha, 90, 61), whole)


def test_cells_tile_the_picture():
    boxes = geometry.cells(Frame(101, 57), 3, 4)
    area = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    assert area.sum() == pytest.approx(101 * 57)
    assert boxes[0, 0].tolist()[:2] == [0, 0]
    assert boxes[-1, -1].tolist()[2:] == [101, 57]
