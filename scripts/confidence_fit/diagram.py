"""The reliability diagram of a model card: a small SVG."""

from __future__ import annotations

from collections.abc import Sequence

SIDE, MARGIN = 300, 44


def reliability_diagram(points: Sequence[Sequence[float]], name: str) -> str:
    """Share of right content words over confidence: one point per tenth of the captions, and the diagonal."""

    def at(confidence: float, share: float) -> str:
        return f"{MARGIN + confidence * SIDE:.1f},{MARGIN / 2 + (1 - share) * SIDE:.1f}"

    grid = "".join(
        f'<path d="M{at(tick, 0)} L{at(tick, 1)} M{at(0, tick)} L{at(1, tick)}" stroke="#ddd"/>'
        f'<text x="{MARGIN + tick * SIDE:.0f}" y="{MARGIN / 2 + SIDE + 15:.0f}" text-anchor="middle">{tick:.1f}</text>'
        f'<text x="{MARGIN - 6}" y="{MARGIN / 2 + (1 - tick) * SIDE + 4:.0f}" text-anchor="end">{tick:.1f}</text>'
        for tick in (0, 0.2, 0.4, 0.6, 0.8, 1)
    )
    line = " ".join(at(*point) for point in points)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="4"/>' for x, y in (at(*point).split(",") for point in points))
    width, height = SIDE + 1.5 * MARGIN, SIDE + 1.5 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" font-size="11" role="img" '
        f'aria-label="Reliability diagram of {name}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{grid}'
        f'<path d="M{at(0, 0)} L{at(1, 1)}" stroke="#888" stroke-dasharray="4 4"/>'
        f'<g fill="#0b6bcb"><polyline points="{line}" fill="none" stroke="#0b6bcb" stroke-width="2"/>{dots}</g>'
        f'<text x="{MARGIN + SIDE / 2:.0f}" y="{height - 6:.0f}" text-anchor="middle">confidence</text>'
        f'<text transform="translate(12 {MARGIN / 2 + SIDE / 2:.0f}) rotate(-90)" text-anchor="middle">'
        "content words that are right</text></svg>\n"
    )
