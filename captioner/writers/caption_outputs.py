"""Opening the outputs of a captioning run, and finding what an earlier run has already written to them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from captioner.caption import Caption
from captioner.errors import CaptionerError, UsageError
from captioner.files.existing import check_not_read_only, check_unoccupied, check_writable
from captioner.images.decoding import is_picture
from captioner.writers import coco_writer, lines
from captioner.writers.caption_formats import Format
from captioner.writers.coco_writer import CocoWriter
from captioner.writers.lines import LineWriter
from captioner.writers.wording import Wording

if TYPE_CHECKING:
    from captioner.writers.parquet_writer import ParquetWriter
    from captioner.writers.review_page import ReviewPage


class CaptionWriter(Protocol):
    """Writes the captions of a run to one output."""

    def write(self, name: str, caption: Caption) -> None:
        """Write the captions of one picture."""

    def close(self) -> None:
        """Complete the output."""


class PhotoWriter(Protocol):
    """Writes a caption to the photo itself, or to a file beside it."""

    change: str  # how a kept text can be changed

    @property
    def adds_lines(self) -> bool:
        """Whether existing texts get more lines."""

    def write(self, name: str, lines: Sequence[str]) -> Path | None:
        """Write the captions of a photo, best first. Returns the file whose text was kept, if any."""

    def has(self, name: str) -> bool:
        """Whether the photo has a caption already."""


@dataclass(frozen=True)
class Written:
    """What came of writing a caption to a photo, beside its line in the output."""

    problems: tuple[str, ...] = ()
    kept: tuple[tuple[Path, str], ...] = ()  # files whose text was kept, and how it can be changed


def write_to_photo(writers: Iterable[PhotoWriter], name: str, lines: Sequence[str]) -> Written:
    """Write the captions of a photo everywhere. What cannot be written does not stop the run."""
    problems, kept = [], []
    for writer in writers:
        try:
            path = writer.write(name, lines)
            if path is not None:
                kept.append((path, writer.change))
        except CaptionerError as error:
            problems.append(str(error))
    return Written(tuple(problems), tuple(kept))


class CaptionOutputs:
    """A file or standard output, and the photos where they are asked for. Use it in a `with` statement."""

    def __init__(
        self,
        path: Path | None,
        format: Format,
        names: Sequence[str] | None = None,
        *,
        words: bool = False,
        resume: bool = False,
        overwrite: bool = False,
        photo_writers: Sequence[PhotoWriter] = (),
        wording: Wording | None = None,
        escape_formulas: bool = False,
    ) -> None:
        """Without `path`, captions go to standard output. `names` are all images; COCO's ids come from them.

        A `path` that exists is refused, unless the run resumes it or overwrites it.
        """
        self._path, self._resume, self._photo_writers = path, resume, photo_writers
        self._wording = wording or Wording()
        check_output(path, resume=resume, overwrite=overwrite)
        if resume and path is None and photo_writers and all(writer.adds_lines for writer in photo_writers):
            raise UsageError("--resume with --existing append or prepend needs --output, to see what is finished")
        with self._explained():
            self._writer, self._finished = _open(
                path, format, names, words=words, resume=resume, wording=wording, escape_formulas=escape_formulas
            )

    @property
    def numbers_images(self) -> bool:
        """Whether COCO results get running numbers, because the names of the images give no ids."""
        return isinstance(self._writer, CocoWriter) and self._writer.image_ids is None

    def is_finished(self, name: str) -> bool:
        """Whether a resumed run can leave this image out: every output has its caption."""
        in_file = self._path is None or name in self._finished
        # A sidecar that gets more lines does not show whether it already has them; the file does.
        return self._resume and in_file and all(each.adds_lines or each.has(name) for each in self._photo_writers)

    def write(self, name: str, caption: Caption) -> Written:
        """Write a caption."""
        if name not in self._finished:  # otherwise only the photo is not finished
            with self._explained():
                self._writer.write(name, caption)
        return write_to_photo(self._photo_writers, name, self._wording.lines(caption))

    def __enter__(self) -> CaptionOutputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._explained():
            self._writer.close()
        if error is None and self._path is not None and not os.path.lexists(self._path):
            raise CaptionerError(f"{self._path} was deleted while captions were written to it; run the command again")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Names the file that cannot be written, for example on a full disk, and says how to continue."""
        try:
            yield
        except OSError as error:
            if self._path is None:  # standard output: the reader may have left, which is no failure
                raise
            raise CaptionerError(
                f"{self._path}: cannot be written ({error.strerror}); --resume continues where the run stopped"
            ) from None


def check_output(path: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Refuse an output that exists and would be lost, or that is a picture."""
    if path is not None and is_picture(path):
        raise UsageError(f"{path} is a picture and is not replaced by captions; choose another --output")
    check_unoccupied(path, "--output", overwrite=overwrite, resume="continue it with --resume", resuming=resume)


def _open(
    path: Path | None,
    format: Format,
    names: Sequence[str] | None,
    *,
    words: bool,
    resume: bool,
    wording: Wording | None,
    escape_formulas: bool,
) -> tuple[CaptionWriter, set[str]]:
    """The writer, and the images that it already has."""
    if format == "parquet" or format == "html":
        return _open_whole_file(path, format, resume=resume, wording=wording)
    image_ids = coco_writer.image_ids_from_names(names) if format == "coco" and names is not None else None
    if path is None:
        stdout = sys.stdout
        if stdout is None:
            raise UsageError("standard output is closed, so there is nowhere to write the captions; give --output")
        if isinstance(stdout, io.TextIOWrapper):  # file names may hold bytes that are not UTF-8
            stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        if format == "coco":
            return CocoWriter(stdout, image_ids, seekable=False), set()
        return LineWriter(stdout, format, words=words, wording=wording, escape_formulas=escape_formulas), set()
    if format == "coco":
        begun = coco_writer.read_begun(path) if resume else coco_writer.Begun()
        finished = coco_writer.finished_names(begun, image_ids)
        file = _open_file(path, "r+" if begun.entries else "w")
        return CocoWriter(file, image_ids, seekable=True, begun=begun), finished
    finished = lines.finished_names(path, format, escape_formulas=escape_formulas) if resume else set()
    append = resume and path.exists() and path.stat().st_size > 0
    file = _open_file(path, "a" if append else "w")
    return LineWriter(
        file, format, words=words, append=append, wording=wording, escape_formulas=escape_formulas
    ), finished


def _open_whole_file(
    path: Path | None, format: Literal["parquet", "html"], *, resume: bool, wording: Wording | None
) -> tuple[CaptionWriter, set[str]]:
    """A writer of a file that is complete only at the end of the run."""
    if path is None:
        raise UsageError(f"--format {format} writes a file; give its name with --output")
    check_writable(path, "--output")
    writer: ParquetWriter | ReviewPage
    if format == "parquet":
        from captioner.writers.parquet_writer import ParquetWriter

        writer = ParquetWriter(path, resume=resume, wording=wording)
    else:
        from captioner.writers.review_page import ReviewPage

        writer = ReviewPage(path, resume=resume, wording=wording)
    return writer, writer.finished


def _open_file(path: Path, mode: Any) -> TextIO:
    try:
        check_not_read_only(path)
        file: TextIO = path.open(mode, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
    return file
