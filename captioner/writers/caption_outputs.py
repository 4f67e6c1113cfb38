"""Opening the outputs of a captioning run, and finding what an earlier run has already written to them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TextIO, get_args

from captioner.caption import Caption
from captioner.errors import CaptionerError, UsageError
from captioner.files.existing import check_not_read_only, check_unoccupied
from captioner.images.decoding import is_picture
from captioner.writers import coco_writer, lines
from captioner.writers.coco_writer import CocoWriter
from captioner.writers.lines import LineWriter
from captioner.writers.sidecars import SidecarWriter
from captioner.writers.wording import Wording

Format = Literal["text", "jsonl", "csv", "coco"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Written:
    """What came of writing a caption, beside its line in the output."""

    problem: str | None = None  # what is wrong with the sidecar
    kept: Path | None = None  # a sidecar that existed and was kept


class CaptionOutputs:
    """A file or standard output, and sidecars where they are asked for. Use it in a `with` statement."""

    def __init__(
        self,
        path: Path | None,
        format: Format,
        names: Sequence[str] | None = None,
        *,
        words: bool = False,
        resume: bool = False,
        overwrite: bool = False,
        sidecars: SidecarWriter | None = None,
        wording: Wording | None = None,
    ) -> None:
        """Without `path`, captions go to standard output. `names` are all images; COCO's ids come from them.

        A `path` that exists is refused, unless the run resumes it or overwrites it.
        """
        self._path, self._resume, self._sidecars = path, resume, sidecars
        check_output(path, resume=resume, overwrite=overwrite)
        if resume and path is None and sidecars is not None and sidecars.adds_lines:
            raise UsageError(f"--resume with --existing {sidecars.existing} needs --output, to see what is finished")
        with self._explained():
            self._writer, self._finished = _open(path, format, names, words=words, resume=resume, wording=wording)

    @property
    def numbers_images(self) -> bool:
        """Whether COCO results get running numbers, because the names of the images give no ids."""
        return isinstance(self._writer, CocoWriter) and self._writer.image_ids is None

    def is_finished(self, name: str) -> bool:
        """Whether a resumed run can leave this image out: every output has its caption."""
        in_file = self._path is None or name in self._finished
        # A sidecar that gets more lines does not show whether it already has them; the file does.
        beside = self._sidecars is None or self._sidecars.adds_lines or self._sidecars.has(name)
        return self._resume and in_file and beside

    def write(self, name: str, caption: Caption) -> Written:
        """Write a caption. A sidecar that cannot be written does not stop the run."""
        if name not in self._finished:  # otherwise only the sidecar is missing
            with self._explained():
                self._writer.write(name, caption)
        try:
            if self._sidecars is not None:
                return Written(kept=self._sidecars.write(name, caption))
        except CaptionerError as error:
            return Written(problem=str(error))
        return Written()

    def __enter__(self) -> CaptionOutputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._explained():
            self._writer.close()

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
) -> tuple[LineWriter | CocoWriter, set[str]]:
    """The writer, and the images that it already has."""
    image_ids = coco_writer.image_ids_from_names(names) if format == "coco" and names is not None else None
    if path is None:
        stdout = sys.stdout
        if isinstance(stdout, io.TextIOWrapper):  # file names may hold bytes that are not UTF-8
            stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        if format == "coco":
            return CocoWriter(stdout, image_ids, seekable=False), set()
        return LineWriter(stdout, format, words=words, wording=wording), set()
    if format == "coco":
        begun = coco_writer.read_begun(path) if resume else coco_writer.Begun()
        finished = coco_writer.finished_names(begun, image_ids)
        file = _open_file(path, "r+" if begun.entries else "w")
        return CocoWriter(file, image_ids, seekable=True, begun=begun), finished
    finished = lines.finished_names(path, format) if resume else set()
    append = resume and path.exists() and path.stat().st_size > 0
    file = _open_file(path, "a" if append else "w")
    return LineWriter(file, format, words=words, append=append, wording=wording), finished


def _open_file(path: Path, mode: Any) -> TextIO:
    try:
        check_not_read_only(path)
        file: TextIO = path.open(mode, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another --output") from None
    return file
