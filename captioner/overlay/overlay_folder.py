"""Writing overlays to a folder, in any formats. No file is ever half written, and existing files are kept."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from PIL import Image

from captioner.caption import Caption
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.files.atomic import sweep, write_atomically
from captioner.files.existing import is_occupied
from captioner.images.reading import Picture
from captioner.overlay import gallery, painting
from captioner.overlay.animation import animation_of
from captioner.overlay.arrays import arrays_npz
from captioner.overlay.contact_sheet import ContactSheet
from captioner.overlay.page import Links, link_to_next, page_of
from captioner.overlay.painting import Style
from captioner.overlay.pdf import check_installed
from captioner.overlay.sheet import Named, comparison, comparison_pdf, comparison_svg
from captioner.overlay.sheet_layout import SheetOptions
from captioner.overlay.stills import file_name_part, words_png

FORMATS = {
    "png": "a sheet with the picture and one panel per word",
    "words": "one PNG per word, as large as the picture",
    "gif": "an animation that reads the sentence",
    "webp": "the animation in full color, and smaller",
    "html": "an interactive page in one file",
    "npz": "the words, maps and geometry as numpy arrays",
    "svg": "the sheet as vector graphics",
    "pdf": "the sheet for papers",
}
_LONGEST_STEM = 150  # bytes; a file name has 255, and the ending and the temporary name need some
_THUMBNAIL_SIDE = 360  # pixels of the longer side


def check_formats(names: Iterable[str]) -> tuple[str, ...]:
    """The formats in the order of FORMATS, each once. A name may also be several, separated by commas."""
    requested = [name.strip().lower() for joined in names for name in joined.split(",") if name.strip()]
    for name in requested:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if "pdf" in requested:
        check_installed()
    return tuple(name for name in FORMATS if name in requested)


@dataclass
class Written:
    """The files of one picture."""

    picture: str
    stem: str  # the beginning of their names
    renamed: bool  # another picture had the name first
    files: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)  # existed before and were not replaced


@dataclass(frozen=True)
class _Target:
    """A file or folder to write for a picture."""

    format: str
    name: str
    model: int | None = None  # index of the model, where each model has a file of its own


class OverlayFolder:
    """The folder that a run writes its overlays to."""

    def __init__(
        self,
        path: Path,
        formats: Sequence[str],
        style: Style | None = None,
        *,
        overwrite: bool = False,
        resume: bool = False,
        models: Sequence[str] = ("",),
        sheet_options: SheetOptions | None = None,
        contact_sheet: Path | None = None,
        with_gallery: bool = False,
        inputs: Iterable[Path] = (),
    ) -> None:
        """`models` are the names of the compared models. `inputs` are the pictures of the run, as far as known.

        Existing files are kept and reported. With `resume` they are what an earlier run has finished: they are not
        reported, and the gallery is renewed.
        """
        self.path, self.formats, self.style = path, tuple(formats), style or Style()
        self.sheet_options = sheet_options or SheetOptions()
        self.overwrite, self.resume, self.models, self.with_gallery = overwrite, resume, tuple(models), with_gallery
        self._taken = {_key("index.html"), _key("thumbnails")} if with_gallery else set()
        # Pictures of the run that lie in this folder are never replaced, not even with `overwrite`.
        self._resolved = path.resolve()
        self._taken |= {_key(picture.name) for picture in inputs if picture.resolve().parent == self._resolved}
        self._contact = (
            ContactSheet(contact_sheet, self.style, overwrite=overwrite or resume)
            if contact_sheet is not None
            else None
        )
        self._cards: list[gallery.Card] = []
        self._page: Path | None = None  # the last page
        self._kept: set[Path] = set()  # pages that existed and are not ours to change
        try:
            path.mkdir(parents=True, exist_ok=True)
            sweep(path)
        except OSError as error:
            raise UsageError(
                f"{path}: the folder cannot be created ({error.strerror}); choose another --output"
            ) from None

    def add(self, captions: Sequence[Caption]) -> Written:
        """Write the overlays of one picture: one caption per model."""
        picture = captions[0].picture
        if picture is None:
            raise CaptionerError("the caption has no picture to draw on; make it with Captioner")
        named = list(zip(self.models, captions, strict=True))
        written = self._claim(picture.name)
        try:
            for target in self._targets(written.stem):
                path = self.path / target.name
                continues_words = self.resume and target.format == "words"  # some of its words may be missing
                if is_occupied(path) and not self.overwrite and not continues_words:
                    if not self.resume:
                        written.kept.append(path)
                        self._kept.add(path)
                    continue
                if target.format == "words":
                    self._write_words(path, captions[target.model or 0])
                elif target.format == "html":
                    links = Links("index.html" if self.with_gallery else "", self._page.name if self._page else "")
                    write_atomically(
                        path, page_of(named, self.style, links=links, full_path=self.sheet_options.full_path)
                    )
                else:
                    drawn = named if target.model is None else [named[target.model]]
                    write_atomically(path, _CONTENT[target.format](drawn, self.style, self.sheet_options))
                written.files.append(path)
            if self.with_gallery and "html" in self.formats:
                self._link_page(self.path / f"{written.stem}.html")
            if self._contact is not None:
                self._contact.add(captions[0])
            if self.with_gallery:
                self._add_card(written.stem, picture, named)
        except OSError as error:
            raise CaptionerError(f"{self.path}: cannot be written to ({error.strerror or error})") from error
        return written

    @property
    def contact_sheets(self) -> list[Path]:
        """The files of the contact sheet that are written."""
        return [] if self._contact is None else self._contact.files

    def finish(self) -> Written | None:
        """Write the gallery, unless an existing one is kept. None where there is none."""
        if self._contact is not None:
            self._contact.finish()
        path = self.path / "index.html"
        if not self._cards:
            return None
        if is_occupied(path) and not (self.overwrite or self.resume):
            return Written("", "index", renamed=False, kept=[path])
        write_atomically(path, gallery.index(self._cards))
        return Written("", "index", renamed=False, files=[path])

    def _link_page(self, page: Path) -> None:
        """Add a link to this page to the page before, which was written when the next one was not known."""
        before, self._page = self._page, page
        if before is not None and before not in self._kept and before.is_file():
            write_atomically(before, link_to_next(before.read_text(encoding="utf-8"), page.name))

    def _claim(self, picture: str) -> Written:
        """A stem whose files clash with those of no other picture of this run."""
        plain = _stem(picture)
        if Path(picture).resolve().parent == self._resolved:
            self._taken.add(_key(Path(picture).name))
        for number in count(1):
            stem = plain if number == 1 else f"{plain}-{number}"
            keys = {_key(target.name) for target in self._targets(stem)}
            if not keys & self._taken:
                self._taken |= keys
                return Written(picture, stem, renamed=number > 1)
        raise AssertionError("unreachable")

    def _targets(self, stem: str) -> Iterator[_Target]:
        for name in self.formats:
            if name not in ("words", "npz"):
                yield _Target(name, f"{stem}.{name}")
                continue
            for number, model in enumerate(self.models):
                own_stem = f"{stem}-{file_name_part(model)}" if model else stem
                yield _Target(name, f"{own_stem}-words" if name == "words" else f"{own_stem}.npz", number)

    def _write_words(self, folder: Path, caption: Caption) -> None:
        folder.mkdir(exist_ok=True)
        names = set()
        for name, content in words_png(caption, self.style):
            if not (self.resume and is_occupied(folder / name)):
                write_atomically(folder / name, content)
            names.add(name)
        for old in folder.glob("[0-9][0-9]-*.png"):  # words of an earlier sentence
            if self.overwrite and old.name not in names:
                old.unlink()

    def _add_card(self, stem: str, picture: Picture, named: Named) -> None:
        thumbnail = self.path / "thumbnails" / f"{stem}.jpg"
        size = _thumbnail_size(picture)
        if self.overwrite or not thumbnail.exists():
            thumbnail.parent.mkdir(exist_ok=True)
            image = painting.upright(picture, min_side=_THUMBNAIL_SIDE)
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=82, optimize=True)
            write_atomically(thumbnail, buffer.getvalue())
        links = tuple((target.format, target.name) for target in self._targets(stem))
        self._cards.append(gallery.Card(picture.name, tuple(named), f"thumbnails/{stem}.jpg", size, links))


_CONTENT: dict[str, Callable[[Named, Style, SheetOptions], bytes | str]] = {
    "png": lambda captions, style, options: _png(comparison(captions, style, options), options),
    "gif": lambda captions, style, options: animation_of(captions, style),
    "webp": lambda captions, style, options: animation_of(captions, style, format="webp"),
    "npz": lambda captions, style, options: arrays_npz(captions[0][1], full_path=options.full_path),
    "svg": comparison_svg,
    "pdf": comparison_pdf,
}


def _png(image: Image.Image, options: SheetOptions) -> bytes:
    buffer = io.BytesIO()
    resolution = {"dpi": (300, 300)} if options.width is not None else {}
    image.save(buffer, "PNG", compress_level=3, **resolution)  # level 6 takes twice the time to save five percent
    return buffer.getvalue()


def _thumbnail_size(picture: Picture) -> tuple[int, int]:
    width, height = picture.frame.width, picture.frame.height
    scale = min(1.0, _THUMBNAIL_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _stem(name: str) -> str:
    """The picture's name as the beginning of file names, valid on every system."""
    plain = unicodedata.normalize("NFC", Path(name).stem)
    plain = "".join("-" if c in '<>:"/\\|?*' or unicodedata.category(c)[0] == "C" else c for c in plain)
    short = plain.encode("utf-8", "replace")[:_LONGEST_STEM].decode("utf-8", "ignore")
    return short.strip(" .") or "picture"


def _key(name: str) -> str:
    """Equal for two names that are one file on some system: upper and lower case, composed and decomposed accents."""
    return unicodedata.normalize("NFC", name).casefold()
