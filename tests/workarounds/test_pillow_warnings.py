"""Pillow's warnings are hidden while a picture is read, in the thread that reads it and nowhere else."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

from captioner.images.decoding import decoded
from captioner.images.reading import read_image
from captioner.workarounds import pillow_warnings
from tests.images.bad_exif import with_bad_exif

READ = "import sys; from captioner.images.decoding import inspect; from pathlib import Path; inspect(Path(sys.argv[1]))"


def test_a_picture_with_broken_exif_writes_nothing_to_standard_error(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(with_bad_exif())
    done = subprocess.run([sys.executable, "-c", READ, tmp_path / "a.jpg"], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_filters_of_the_caller_hold_again_after_each_reading(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(with_bad_exif())
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(2):
            warnings.simplefilter("always")
            read_image(tmp_path / "a.jpg")
        assert caught == []
        warn("PIL.TiffImagePlugin")
        assert len(caught) == 1


def test_other_warnings_and_those_of_other_threads_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(with_bad_exif())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with path.open("rb") as file, decoded(file, "a.jpg"):
            warn("PIL.TiffImagePlugin")
            assert caught == []
            warn("PILLS")
            thread = threading.Thread(target=warn, args=["PIL.TiffImagePlugin"])
            thread.start()
            thread.join()
        assert len(caught) == 2


def test_the_filter_can_be_passed_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(pillow_warnings._FILTER)) == pillow_warnings._FILTER


def warn(module: str) -> None:
    warnings.warn_explicit("odd data", UserWarning, "file.py", 1, module=module)
