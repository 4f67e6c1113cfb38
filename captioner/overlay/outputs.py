"""Writing overlays to a folder: any formats, no file half written, nothing overwritten unasked."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from PIL import Image

from captioner.caption import Caption
from captioner.errors import CaptionerError, unknown
from captioner.files.atomic import write_atomically
from captioner.images.reading import Picture
from captioner.overlay import gallery, heat
from captioner.overlay.animation import animation_of
from captioner.overlay.arrays import arrays_npz
from captioner.overlay.heat import Style
from captioner.overlay.page import page_of
from captioner.overlay.pdf import check_installed
from captioner.overlay.sheet import comparison, comparison_pdf, comparison_svg
from captioner.overlay.stills import spelled, words_png

Named = Sequence[tuple[str, Caption]]  # a caption of each model, under the model's name; one model has none

FORMATS = {
    "png": "one sheet: the picture and a panel a word",
    "words": "one PNG a word, as large as the picture",
    "gif": "an animation that reads the sentence",
    "html": "a page to explore, one file without network",
    "npz": "the numbers: words, maps, geometry",
    "svg": "the sheet as vector graphics",
    "pdf": "the sheet as vector graphics, for papers",
}
_LONGEST_STEM = 150  # bytes: leaves room in a file name of 255 for the ending and the temporary name
_THUMBNAIL = 360  # pixels of the long side


def check_formats(names: Iterable[str]) -> tuple[str, ...]:
    """The formats named, each once, in the order of FORMATS; commas separate as well as spaces do."""
    asked = [name.strip().lower() for several in names for name in several.split(",") if name.strip()]
    for name in asked:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if "pdf" in asked:
        check_installed()
    return tuple(name for name in FORMATS if name in asked)


@dataclass
class Outcome:
    """What became of one picture."""

    stem: str
    renamed: bool  # another picture had the name first
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)  # were there before


class Folder:
    """The folder that a run writes to."""

    def __init__(
        self,
        path: Path,
        formats: Sequence[str],
        style: Style | None = None,
        *,
        overwrite: bool = False,
        models: Sequence[str] = ("",),
        with_gallery: bool = False,
        inputs: Iterable[Path] = (),
    ) -> None:
        self.path, self.formats, self.style = path, tuple(formats), style or Style()
        self.overwrite, self.models, self.with_gallery = overwrite, tuple(models), with_gallery
        self._taken = {_key("index.html"), _key("thumbnails")} if with_gallery else set()
        self._here = here = path.resolve()
        # A picture that is itself in the folder is never written over, whatever --overwrite says.
        self._taken |= {_key(one.name) for one in inputs if one.resolve().parent == here}
        self._cards: list[gallery.Card] = []
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaptionerError(f"{path}: the folder cannot be made ({error.strerror})") from None

    def claim(self, name: str) -> tuple[str, bool]:
        """A name for the files of a picture that no other picture of this run has; and whether it differs."""
        plain = _stem(name)
        if Path(name).resolve().parent == self._here:
            self._taken.add(_key(Path(name).name))
        for number in count(1):
            stem = plain if number == 1 else f"{plain}-{number}"
            targets = {_key(target) for _, target, _ in self._targets(stem)}
            if not targets & self._taken:
                self._taken |= targets
                return stem, number > 1
        raise AssertionError("unreachable")

    def _targets(self, stem: str) -> Iterator[tuple[str, str, int | None]]:
        """Format, file or folder name, and the model it is of where each model has a file of its own."""
        for name in self.formats:
            if name in ("words", "npz"):
                for number, model in enumerate(self.models):
                    own = f"{stem}-{spelled(model)}" if model else stem
                    yield name, f"{own}-words" if name == "words" else f"{own}.npz", number
            else:
                yield name, f"{stem}.{name}", None

    def add(self, captions: Named, claimed: tuple[str, bool]) -> Outcome:
        """Write a picture's overlays under the name claimed for it."""
        stem, renamed = claimed
        outcome = Outcome(stem, renamed)
        try:
            for name, target, model in self._targets(stem):
                path = self.path / target
                if path.exists() and not self.overwrite:
                    outcome.kept.append(path)
                elif name == "words":
                    self._write_words(path, captions[model or 0][1])
                    outcome.written.append(path)
                else:
                    own = captions if model is None else [captions[model]]
                    write_atomically(path, _CONTENT[name](own, self.style))
                    outcome.written.append(path)
            if self.with_gallery:
                self._add_card(stem, captions)
        except OSError as error:
            raise CaptionerError(f"{self.path}: cannot be written to ({error.strerror or error})") from error
        return outcome

    def _write_words(self, folder: Path, caption: Caption) -> None:
        folder.mkdir(exist_ok=True)
        names = set()
        for name, content in words_png(caption, self.style):
            write_atomically(folder / name, content)
            names.add(name)
        for old in folder.glob("[0-9][0-9]-*.png"):  # of a longer or another sentence before
            if old.name not in names:
                old.unlink()

    def _add_card(self, stem: str, captions: Named) -> None:
        picture = captions[0][1].picture
        assert picture is not None
        thumbnail = self.path / "thumbnails" / f"{stem}.jpg"
        size = _shrunk(picture)
        if self.overwrite or not thumbnail.exists():
            thumbnail.parent.mkdir(exist_ok=True)
            image = heat.upright(picture, least=_THUMBNAIL).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=82, optimize=True)
            write_atomically(thumbnail, buffer.getvalue())
        links = tuple((name, target) for name, target, _ in self._targets(stem))
        texts = tuple((model, caption.text) for model, caption in captions)
        self._cards.append(gallery.Card(picture.name, texts, f"thumbnails/{stem}.jpg", size, links))

    def finish(self) -> Path | None:
        """Write the gallery, where there is one; None where one was there before and is kept."""
        path = self.path / "index.html"
        if not self._cards or (path.exists() and not self.overwrite):
            return None
        write_atomically(path, gallery.index(self._cards))
        return path


_CONTENT: dict[str, Callable[[Named, Style], bytes | str]] = {
    "png": lambda captions, style: _png(comparison(captions, style)),
    "gif": animation_of,
    "html": page_of,
    "npz": lambda captions, style: arrays_npz(captions[0][1]),
    "svg": comparison_svg,
    "pdf": comparison_pdf,
}


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=3)  # 6 saves a twentieth for twice the time
    return buffer.getvalue()


def _shrunk(picture: Picture) -> tuple[int, int]:
    width, height = picture.frame.width, picture.frame.height
    shrink = min(1.0, _THUMBNAIL / max(width, height))
    return max(1, round(width * shrink)), max(1, round(height * shrink))


def _stem(name: str) -> str:
    """A picture's name as the beginning of file names."""
    plain = unicodedata.normalize("NFC", Path(name).stem)
    plain = "".join("-" if c in '<>:"/\\|?*' or unicodedata.category(c)[0] == "C" else c for c in plain)
    cut = plain.encode("utf-8", "replace")[:_LONGEST_STEM].decode("utf-8", "ignore")
    return cut.strip(" .") or "picture"


def _key(name: str) -> str:
    """What two names share that some file systems take for one."""
    return unicodedata.normalize("NFC", name).casefold()
