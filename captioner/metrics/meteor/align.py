"""METEOR's alignment of two sentences: which words of the caption match which words of the reference.

Candidates come from four matchers. The alignment uses each word at most once. It covers as many words as possible in
as few chunks as possible. A chunk is a run of matches that are adjacent and in the same order in both sentences. The
search is a beam search over the words of the reference from left to right. It copies METEOR 1.5, including these
properties, which its papers do not mention:

- coverage is rounded down to whole words after weighting, so a single stem or synonym match counts as 0;
- a chunk is counted when it ends;
- the distance, which breaks ties, grows by the matches that were skipped, not by the matches that were taken;
- a match that shares no word with another match is fixed before the search.
"""

from __future__ import annotations

from typing import NamedTuple

BEAM = 40
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the matchers: exact, stem, synonym, paraphrase


class Match(NamedTuple):
    """`ref_length` words of the reference from `ref` on match `length` words of the caption from `start` on."""

    ref: int
    ref_length: int
    start: int
    length: int
    matcher: int


class _Path(NamedTuple):
    """An alignment of the reference's words before `at`."""

    covered: int
    chunks: int
    distance: int
    at: int
    chunk_end: int  # where the open chunk ends in the caption, or -1
    used: int  # words of the caption, one bit per word
    ref_used: int
    matches: tuple[Match, ...]

    def rank(self) -> tuple[int, int, int]:
        return -self.covered, self.chunks, self.distance


def align(candidates: list[list[Match]], caption_length: int) -> tuple[list[Match], int]:
    """The best matches in the order of the reference, and the number of chunks.

    `candidates` has one list per word of the reference: the matches that begin there, best matcher first.
    """
    fixed = _fixed_positions(candidates, caption_length)
    paths = [_Path(0, 0, 0, 0, -1, 0, 0, ())]
    for at in range(len(candidates)):
        following: list[_Path] = []
        for path in paths[:BEAM]:
            if path.at > at:
                following.append(path)
            elif at in fixed:
                following.append(_with_match(path, candidates[at][0], path.distance))
            else:
                distance = path.distance
                for match in candidates[at]:
                    if not (path.used & _caption_bits(match) or path.ref_used & _reference_bits(match)):
                        following.append(_with_match(path, match, distance))
                        distance += abs(match.ref - match.start)
                covered, chunks, _, _, chunk_end, used, ref_used, matches = path
                chunks += chunk_end != -1
                following.append(_Path(covered, chunks, distance, at + 1, -1, used, ref_used, matches))
        if len(following) > 1:
            following.sort(key=_Path.rank)
        paths = following
    finished = [path._replace(chunks=path.chunks + (path.chunk_end != -1)) for path in paths[:BEAM]]
    best = min(finished, key=_Path.rank)  # the first of equals, as in a stable sort
    return list(best.matches), best.chunks


def _with_match(path: _Path, match: Match, distance: int) -> _Path:
    weight = WEIGHTS[match.matcher]
    covered = int(weight * match.length) + int(weight * match.ref_length)
    closes = path.chunk_end not in (-1, match.start)
    return _Path(
        path.covered + covered,
        path.chunks + closes,
        distance,
        match.ref + match.ref_length,
        match.start + match.length,
        path.used | _caption_bits(match),
        path.ref_used | _reference_bits(match),
        (*path.matches, match),
    )


def _fixed_positions(candidates: list[list[Match]], caption_length: int) -> set[int]:
    """Positions in the reference whose only match covers words that no other match covers."""
    covered = [0] * caption_length
    ref_covered = [0] * len(candidates)
    for matches in candidates:
        for match in matches:
            for i in range(match.start, match.start + match.length):
                covered[i] += 1
            for j in range(match.ref, match.ref + match.ref_length):
                ref_covered[j] += 1
    return {
        position
        for position, matches in enumerate(candidates)
        if len(matches) == 1
        and max(ref_covered[position : position + matches[0].ref_length]) == 1
        and max(covered[matches[0].start : matches[0].start + matches[0].length]) == 1
    }


def _caption_bits(match: Match) -> int:
    return ((1 << match.length) - 1) << match.start


def _reference_bits(match: Match) -> int:
    return ((1 << match.ref_length) - 1) << match.ref
