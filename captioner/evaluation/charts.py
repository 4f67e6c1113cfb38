"""Small SVG charts for the report: histograms, and a score with its interval. The page's style sheet has the colors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 520, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 40


def histogram(
    series: Sequence[tuple[str, Sequence[float]]], *, title: str, axis: str, whole: bool = False, bins: int = 24
) -> str:
    """Shares of one or two series over common bins. With `whole`, each whole number has its own bin.

    The first series is drawn as bars, the second as a stepped line.
    """
    values = [np.asarray(numbers, np.float64) for _, numbers in series]
    everything = np.concatenate(values) if values else np.zeros(0)
    if not len(everything):
        return f'<p class="faint">{escape(title)}: nothing to show</p>'
    edges = _edges(everything, whole, bins)
    shares = [
        np.histogram(np.clip(numbers, edges[0], edges[-1]), edges)[0] / max(len(numbers), 1) for numbers in values
    ]
    top = 4 * _nice(max(float(heights.max()) for heights in shares) / 4)

    def x(value: float) -> float:
        return float(_LEFT + (value - edges[0]) / (edges[-1] - edges[0]) * (_WIDTH - _LEFT - _RIGHT))

    def y(share: float) -> float:
        return float(_HEIGHT - _BOTTOM - share / top * (_HEIGHT - _TOP - _BOTTOM))

    parts = []
    for k in range(5):
        share = top * k / 4
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for share, a, b in zip(shares[0], edges, edges[1:], strict=False):
        if share:
            label = f"{a:.0f}" if whole else f"{a:.3g} to {b:.3g}"
            parts.append(
                f'<rect class="bar" x="{x(a) + 0.5:.1f}" width="{max(x(b) - x(a) - 1, 0.5):.1f}" y="{y(share):.1f}" '
                f'height="{y(0) - y(share):.1f}"><title>{label}: {share:.1%}</title></rect>'
            )
    for heights in shares[1:]:
        points = [(x(edges[0]), y(0))]
        for share, a, b in zip(heights, edges, edges[1:], strict=False):
            points += [(x(a), y(share)), (x(b), y(share))]
        points.append((x(edges[-1]), y(0)))
        parts.append(f'<polyline class="steps" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
    for tick in _ticks(edges, whole):
        at = x(tick + 0.5 if whole else tick)
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    highest = float(everything.max())
    if highest > edges[-1] or (whole and highest == edges[-1]):
        axis += "; the last bin has all higher values"
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(axis)}</text>'
    )
    names = [name for name, _ in series]
    key = "".join(
        f'<span class="{kind}">{escape(name)}</span>' for kind, name in zip(("bars", "line"), names, strict=False)
    )
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
        + (f'<p class="key">{key}</p>' if len(names) > 1 else "")
        + "</figure>"
    )


def end_of_scale(high: float) -> float:
    """The end of a score's scale: 100, or more for a CIDEr above 100."""
    return 100.0 if high <= 100 else _nice(high)


def whisker(value: float, low: float, high: float, top: float) -> str:
    """A bar from 0 to the value with its interval, on a scale from 0 to `top`."""
    width, height = 240, 16

    def at(number: float) -> float:
        return min(max(number / top, 0.0), 1.0) * (width - 4) + 2

    return (
        f'<svg class="whisker" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<rect class="track" x="2" y="5" width="{width - 4}" height="6"/>'
        f'<rect class="bar" x="2" y="5" width="{at(value) - 2:.1f}" height="6"/>'
        f'<line class="interval" x1="{at(low):.1f}" x2="{max(at(high), at(low) + 1):.1f}" y1="8" y2="8"/>'
        f'<line class="interval" x1="{at(low):.1f}" x2="{at(low):.1f}" y1="3" y2="13"/>'
        f'<line class="interval" x1="{at(high):.1f}" x2="{at(high):.1f}" y1="3" y2="13"/></svg>'
    )


def _edges(values: NDArray[np.float64], whole: bool, bins: int) -> NDArray[np.float64]:
    # The highest 0.5 % go into the last bin, so that one outlier does not compress the rest.
    low, high = float(values.min()), float(np.percentile(values, 99.5))
    if whole:
        return np.arange(math.floor(low), math.floor(high) + 2, dtype=np.float64)
    high = max(high, low + 1e-9)
    step = _nice((high - low) / bins)
    first = math.floor(low / step) * step
    return np.asarray(first + step * np.arange(max(1, math.ceil((high - first) / step)) + 1))


def _ticks(edges: NDArray[np.float64], whole: bool) -> list[float]:
    last = edges[-1] - 1 if whole else edges[-1]
    span = max(float(last - edges[0]), 1e-9)
    step = max(_nice(span / 7), 1.0 if whole else 0.0)
    first = math.ceil(edges[0] / step - 1e-9) * step
    return [round(first + i * step, 9) for i in range(int((last - first) / step + 1e-9) + 1)]


def _nice(value: float) -> float:
    """The value rounded up to 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))
