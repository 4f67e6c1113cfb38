"""A canvas that writes a one-page PDF by hand: text stays text, so that a sheet in a paper can be searched."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw

from captioner.overlay import lettering
from captioner.overlay.canvas import Colour

_ENCODING = "cp1252"  # PDF's WinAnsiEncoding; text with other letters is drawn as a picture


class Pdf:
    """Helvetica, which every reader of PDF has; pictures as JPEG at two pixels a point."""

    density = 2.0

    def __init__(self, width: float, height: float, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._drawing: list[bytes] = []
        self._images: list[Image.Image] = []

    def text(self, x: float, y: float, text: str, size: int, colour: Colour) -> None:
        try:
            line = text.encode(_ENCODING)
        except UnicodeEncodeError:
            self._drawn_text(x, y, text, size, colour)
            return
        for special in (b"\\", b"(", b")"):
            line = line.replace(special, b"\\" + special)
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
        place = f"BT {_rgb(colour)} rg /F1 {size} Tf 1 0 0 1 {x:.2f} {self._height - y:.2f} Tm ("
        self._drawing.append(place.encode("ascii") + line + b") Tj ET")

    def _drawn_text(self, x: float, y: float, text: str, size: int, colour: Colour) -> None:
        sharp = 4  # pixels a point
        drawn, font = lettering.fitting(text, size * sharp)
        _, top, right, bottom = font.getbbox(drawn, anchor="ls")
        image = Image.new("RGB", (max(1, int(right) + 2), max(1, int(bottom - top) + 2)), (255, 255, 255))
        ImageDraw.Draw(image).text((0, -top), drawn, fill=colour, font=font, anchor="ls")
        self.picture(x, y + top / sharp, image.width / sharp, image.height / sharp, image)

    def box(self, x: float, y: float, width: float, height: float, fill: Colour) -> None:
        bottom = self._height - y - height
        self._drawing.append(f"{_rgb(fill)} rg {x:.2f} {bottom:.2f} {width:.2f} {height:.2f} re f".encode("ascii"))

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None:
        bottom = self._height - y - height
        matrix = f"{width:.2f} 0 0 {height:.2f} {x:.2f} {bottom:.2f} cm"
        self._drawing.append(f"q {matrix} /I{len(self._images)} Do Q".encode("ascii"))
        self._images.append(image)

    def finish(self) -> bytes:
        """The whole document."""
        pictures = " ".join(f"/I{i} {6 + i} 0 R" for i in range(len(self._images)))
        title = self._title.encode("utf-16-be", "replace").hex()
        objects = [
            b"<< /Type /Catalog /Pages 2 0 R /ViewerPreferences << /DisplayDocTitle true >> >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            (
                f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {self._width:.2f} {self._height:.2f}] "
                f"/Contents 4 0 R /Resources << /Font << /F1 5 0 R >> /XObject << {pictures} >> >> >>"
            ).encode("ascii"),
            _stream(b"", b"\n".join(self._drawing)),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            *(_jpeg(image) for image in self._images),
            f"<< /Title <FEFF{title}> /Producer (captioner) >>".encode("ascii"),
        ]
        out = io.BytesIO()
        out.write(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
        starts = []
        for number, content in enumerate(objects, 1):
            starts.append(out.tell())
            out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
        table = out.tell()
        out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
        out.writelines(b"%010d 00000 n \n" % start for start in starts)
        out.write(b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects)))
        out.write(b"startxref\n%d\n%%%%EOF\n" % table)
        return out.getvalue()


def _jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=90, optimize=True)
    head = (
        f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} "
        "/ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode "
    )
    return _stream(head.encode("ascii"), buffer.getvalue())


def _stream(head: bytes, content: bytes) -> bytes:
    return b"<< %s/Length %d >>\nstream\n%s\nendstream" % (head, len(content), content)


def _rgb(colour: Colour) -> str:
    return " ".join(f"{part / 255:.4f}" for part in colour)
