import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli import command_line
from tests.tiny_bundle import WORDS, write_model


@pytest.fixture
def model_folder(tmp_path, monkeypatch) -> Path:
    """Two models, soft and hard, found by name."""
    write_model(tmp_path / "models" / "default")
    write_model(tmp_path / "models" / "hard", hard=True, seed=3)
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path / "models"))
    return tmp_path


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder with two pictures, one with an EXIF orientation, and two broken files."""
    folder = tmp_path / "photos"
    folder.mkdir()
    y, x = np.mgrid[:60, :90]
    pixels = np.stack([x * 2, y * 3, 255 - x], axis=-1).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "one.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels[:, ::-1].copy()).save(folder / "two.png", exif=exif)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_text("not a picture")
    return folder


@pytest.fixture
def captioner(model_folder):
    """Runs the command. Returns exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        done = command_line.run("overlay", *arguments)
        return done.returncode, done.stdout, done.stderr

    return call


def test_a_folder_is_drawn_and_bad_files_are_reported_with_exit_code_1(captioner, photos, tmp_path):
    code, out, err = captioner(photos, "-o", tmp_path / "out")
    assert code == 1
    assert "empty.jpg" in err and "text.png" in err and "Traceback" not in err
    expected = [tmp_path / "out" / name for name in ("one.png", "one.html", "two.png", "two.html", "index.html")]
    assert out.split() == list(map(str, expected))
    assert all(path.is_file() for path in expected)


def test_one_picture_gets_no_gallery(captioner, photos, tmp_path):
    code, _, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", "-f", "png")
    assert (code, err) == (0, "")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one.png"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("{out}/nothing.jpg", "-o", "{out}"),
        ("{photos}/one.jpg", "-o", "{out}", "-f", "jpeg"),
        ("{photos}/one.jpg", "-o", "{out}", "-f", ","),
        ("{photos}/one.jpg", "-o", "{out}", "--opacity", "2"),
        ("{photos}/one.jpg", "-o", "{out}", "--text", " "),
        ("{photos}/one.jpg", "-o", "{out}", "--model", "hart"),
        ("{photos}/one.jpg", "-o", "{out}", "--compare", "hart"),
    ],
)
def test_a_wrong_call_has_exit_code_2_and_writes_nothing(captioner, photos, tmp_path, arguments):
    filled = [each.format(out=tmp_path / "out", photos=photos) for each in arguments]
    code, out, err = captioner(*filled)
    assert (code, out) == (2, "") and err and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_the_models_own_words_and_maps_are_in_the_npz(captioner, photos, tmp_path):
    from captioner import Captioner

    captioner(photos / "two.png", "-o", tmp_path / "out", "-f", "npz")
    caption = Captioner.load()(photos / "two.png")
    with np.load(tmp_path / "out" / "two.npz", allow_pickle=False) as arrays:
        assert str(arrays["text"]) == caption.text
        np.testing.assert_allclose(arrays["alpha"], caption.alphas, atol=1e-6)
        assert (int(arrays["width"]), int(arrays["height"]), int(arrays["orientation"])) == (60, 90, 6)


def test_a_given_sentence_is_drawn_with_its_unknown_words_unchanged(captioner, photos, tmp_path):
    code, _, _ = captioner(photos, "-o", tmp_path / "out", "-f", "npz", "--text", "A zebra on the mat.")
    assert code == 1
    for name in ("one", "two"):
        with np.load(tmp_path / "out" / f"{name}.npz") as arrays:
            assert arrays["words"].tolist() == ["a", "zebra", "on", "the", "mat"]


def data(page: Path) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))[1])


def test_two_models_are_side_by_side_and_the_hard_one_has_cells(captioner, photos, tmp_path):
    code, _, _ = captioner(photos / "one.jpg", "-o", tmp_path / "out", "--compare", "hard", "--text", "a cat sleeps")
    assert code == 0
    soft, hard = data(tmp_path / "out" / "one.html")["tracks"]
    cells = [word["cell"] for word in hard[0]["words"]]
    assert all(place is not None for place in cells)
    assert all("cell" not in word for word in soft[0]["words"])


def test_a_hard_model_that_used_the_expectation_shows_its_likeliest_cells(captioner, photos, tmp_path):
    captioner(photos / "one.jpg", "-o", tmp_path / "out", "-f", "npz", "-m", "hard", "--hard-attention", "expected")
    with np.load(tmp_path / "out" / "one.npz") as arrays:
        for alpha, (row, col) in zip(arrays["alpha"], arrays["cell"], strict=True):
            assert alpha[row, col] == alpha.max()


def test_a_model_compared_with_itself_gets_two_names(captioner, photos, tmp_path):
    captioner(photos / "one.jpg", "-o", tmp_path / "out", "-f", "npz,html", "--compare", "default")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "one.html",
        "one-default.npz",
        "one-default-2.npz",
    }


def test_pages_have_alternatives_and_the_same_best_sentence(captioner, photos, tmp_path):
    captioner(photos / "one.jpg", "-o", tmp_path / "a", "-f", "html,npz")
    captioner(photos / "one.jpg", "-o", tmp_path / "b", "-f", "npz")
    (track,) = data(tmp_path / "a" / "one.html")["tracks"]
    assert len(track) == 2  # the beam of this model
    with np.load(tmp_path / "b" / "one.npz") as arrays:
        assert " ".join(word["word"] for word in track[0]["words"]) == str(arrays["text"])


def test_existing_files_are_kept_and_reported_without_overwrite(captioner, photos, tmp_path):
    target = tmp_path / "out" / "one.png"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    code, out, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", "-f", "png")
    assert (code, out) == (0, "") and "kept the existing one.png" in err and target.read_bytes() == b"mine"
    _, out, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", "-f", "png", "--overwrite")
    assert out.strip() == str(target) and err == "" and target.read_bytes() != b"mine"


def test_an_existing_gallery_is_kept_and_named_and_renewed_by_resume(captioner, photos, tmp_path):
    index = tmp_path / "out" / "index.html"
    index.parent.mkdir()
    index.write_text("mine")
    _, _, err = captioner(photos, "-o", tmp_path / "out", "-f", "png")
    assert f"kept the existing {index}" in err and index.read_text() == "mine"
    before = (tmp_path / "out" / "one.png").stat().st_mtime_ns
    (tmp_path / "out" / "two.png").unlink()
    _, out, err = captioner(photos, "-o", tmp_path / "out", "-f", "png", "--resume")
    assert [Path(line).name for line in out.split()] == ["two.png", "index.html"] and "kept" not in err
    assert (tmp_path / "out" / "one.png").stat().st_mtime_ns == before
    assert "one.png" in index.read_text() and "two.png" in index.read_text()
    code, _, _ = captioner(photos, "-o", tmp_path / "out", "--resume", "--overwrite")
    assert code == 2


def test_overlays_go_to_the_folder_out_by_default(captioner, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert captioner(photos / "one.jpg", "-f", "npz") == (0, f"{Path('out') / 'one.npz'}\n", "")


def test_the_progress_bar_is_visible_while_a_picture_is_drawn(captioner, photos, tmp_path, monkeypatch):
    from captioner.cli import overlay as overlay_command
    from captioner.overlay.overlay_folder import OverlayFolder
    from captioner.progress import ProgressBar

    visible = []

    class Bar(ProgressBar):
        shown = False

        def show(self, *values, **named):
            Bar.shown = True

        def clear(self):
            Bar.shown = False

    def add(self, captions, really=OverlayFolder.add):
        visible.append(Bar.shown)
        return really(self, captions)

    monkeypatch.setattr(overlay_command, "ProgressBar", Bar)
    monkeypatch.setattr(OverlayFolder, "add", add)
    captioner(photos, "-o", tmp_path / "out", "-f", "npz")
    assert visible == [True, True]


def test_a_picture_on_standard_input_is_drawn_in_its_own_size(captioner, photos, tmp_path, monkeypatch):
    picture = io.BytesIO()
    Image.new("RGB", (700, 500), "red").save(picture, "PNG")
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(picture.getvalue())))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, _, _ = captioner("-", "-o", tmp_path / "out", "-f", "words", "--compare", "hard")
    assert code == 0
    with Image.open(next((tmp_path / "out" / "stdin-default-words").iterdir())) as drawn:
        assert drawn.size == (700, 500)


@pytest.mark.parametrize("options", [("--beam", "3"), ("--forbid", "cat"), ("--seed", "3")])
def test_search_options_without_effect_on_a_given_sentence_are_refused(captioner, photos, tmp_path, options):
    code, _, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", "--text", "a cat", *options)
    assert code == 2 and options[0] in err


def test_hard_attention_is_refused_unless_one_of_the_models_is_hard(captioner, photos, tmp_path):
    how = ("-o", tmp_path / "out", "-f", "npz", "--hard-attention", "argmax")
    code, _, err = captioner(photos / "one.jpg", *how)
    assert code == 2 and "--hard-attention has no effect" in err and not (tmp_path / "out").exists()
    assert captioner(photos / "one.jpg", *how, "--compare", "hard")[0] == 0


def test_what_was_not_drawn_is_counted_at_the_end(captioner, photos, tmp_path):
    (photos / "more").mkdir()
    _, _, err = captioner(photos, "-o", tmp_path / "out", "-f", "npz")
    assert err.endswith("2 drawn, 3 skipped: 2 unreadable, 1 folder not entered (use -r)\n")


def test_clashing_names_are_resolved_and_reported(captioner, photos, tmp_path):
    (tmp_path / "more").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "more" / "one.png")
    _, out, err = captioner(photos / "one.jpg", tmp_path / "more", "-o", tmp_path / "out", "-f", "npz")
    assert {"one.npz", "one-2.npz"} <= {Path(line).name for line in out.split()}
    assert "written as one-2" in err


def test_a_dash_reads_names_from_standard_input(captioner, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{photos}/one.jpg\n{photos}/two.png\n"))
    code, out, _ = captioner("-", "-o", tmp_path / "out", "-f", "svg")
    assert code == 0
    assert [Path(line).name for line in out.split()] == ["one.svg", "two.svg", "index.html"]


@pytest.mark.parametrize("options", [("--style", "heat"), ("--grid",), ("--per-word",), ("--opacity", "0.3")])
def test_drawing_options_change_the_drawing(captioner, photos, tmp_path, options):
    captioner(photos / "one.jpg", "-o", tmp_path / "a", "-f", "words,png")
    captioner(photos / "one.jpg", "-o", tmp_path / "b", "-f", "words,png", *options)
    assert (tmp_path / "a" / "one.png").read_bytes() != (tmp_path / "b" / "one.png").read_bytes()


def test_pictures_above_the_pixel_limit_are_refused(captioner, photos, tmp_path):
    code, _, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", "--pixel-limit", "100")
    assert code == 1 and "--pixel-limit" in err
    code, _, _ = captioner(photos / "one.jpg", "-o", tmp_path / "out", "--pixel-limit", "5400", "-f", "words")
    assert code == 0


def test_drawing_needs_no_torch(captioner, photos, tmp_path):
    script = (
        "import sys; from captioner.cli import run\n"
        f"sys.argv = ['captioner', 'overlay', {str(photos / 'one.jpg')!r}, '-o', {str(tmp_path / 'out')!r},"
        " '-f', 'png,words,gif,html,npz,svg,pdf']\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_options_of_the_sheet_change_the_sheet(captioner, photos, tmp_path):
    def drawn(*options: str) -> bytes:
        given = ["-f", "svg", "--overwrite", "--text", "a dog on grass", *options]
        captioner(photos / "one.jpg", "-o", tmp_path / "out", *given)
        return (tmp_path / "out" / "one.svg").read_bytes()

    plain = drawn()
    for options in (["--words", "content"], ["--columns", "1"], ["--no-title"], ["--no-bars"], ["--width", "84mm"]):
        assert drawn(*options) != plain
    assert b"one.jpg" in plain and b"one.jpg" not in drawn("--no-path")
    folder = str(photos)[:12].encode()  # a long path is shortened at its end
    assert folder not in plain and folder in drawn("--full-path")


def test_words_that_no_caption_has_are_named_once_for_the_run(captioner, model_folder, tmp_path):
    for color in ("red", "black"):
        Image.new("RGB", (60, 40), color).save(tmp_path / f"{color}.png")
    given = [tmp_path / "red.png", tmp_path / "black.png", "-f", "png", "--overwrite", "-o", tmp_path / "out"]
    forced = [*given, "--text", "a dog on grass"]
    code, out, err = captioner(*forced, "--words", "dog,zebra,Unicorn")
    assert code == 0 and len(out.split()) == 3
    assert err == "note: no caption of this run has the words zebra, unicorn (--words)\n"
    assert captioner(*forced, "--words", "zebra")[2] == "note: no caption of this run has the word zebra (--words)\n"
    for words in ("dog,grass", "content", "all"):
        assert captioner(*forced, "--words", words)[2] == ""

    from captioner import Captioner

    said = [set(Captioner.load()(path).text.split()) for path in given[:2]]
    assert said[0] - said[1] and said[1] - said[0]  # words of one caption are not named
    missing = [word for word in WORDS if word not in said[0] | said[1]]
    expected = f"note: no caption of this run has the words {', '.join(missing)} (--words)\n"
    assert len(missing) > 1 and captioner(*given, "--words", ",".join(WORDS))[2] == expected


def test_a_run_without_captions_says_nothing_about_words(captioner, photos, tmp_path):
    code, _, err = captioner(photos / "empty.jpg", "-o", tmp_path / "out", "-f", "png", "--words", "zebra")
    assert code == 1 and "zebra" not in err


def test_evidence_is_measured_and_written(captioner, photos, tmp_path):
    code, _, _ = captioner(
        photos / "one.jpg", "-o", tmp_path / "out", "-f", "html,npz", "--evidence", "--text", "a dog"
    )
    assert code == 0
    (words,) = (view[0]["words"] for view in data(tmp_path / "out" / "one.html")["tracks"])
    assert [("evidence" in word, len(word["alternatives"])) for word in words] == [(False, 5), (True, 5)]
    with np.load(tmp_path / "out" / "one.npz") as arrays:
        assert np.isnan(arrays["habit"]).tolist() == [True, False]


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--curves"], "--evidence"),
        (["--evidence", "-f", "png"], "html and npz"),
        (["--width", "wide"], "84mm"),
        (["--words", ","], "--words names no word"),
        (["--style", "heatmap"], "spotlight"),
        (["--contact-sheet", "contact.gif"], ".png or .jpg"),
    ],
)
def test_wrong_options_of_drawings_are_refused_in_a_sentence(captioner, photos, tmp_path, options, problem):
    code, out, err = captioner(photos / "one.jpg", "-o", tmp_path / "out", *options)
    assert code == 2 and problem in err and not out
    assert not (tmp_path / "out").exists()


def test_a_contact_sheet_is_written_beside_the_pages(captioner, photos, tmp_path):
    sheet = tmp_path / "contact.jpg"
    code, out, _ = captioner(photos, "-o", tmp_path / "out", "-f", "npz", "--contact-sheet", sheet)
    assert str(sheet) in out.split()
    assert sheet.read_bytes().startswith(b"\xff\xd8")
    code, _, err = captioner(photos, "-o", tmp_path / "out2", "-f", "npz", "--contact-sheet", sheet)
    assert code == 2 and "exists and is kept" in err
