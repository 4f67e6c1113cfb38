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

from operator import itemgetter
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


# An alignment of the reference's words before `at`:
#     (cost: minus the covered words, chunks, distance, `at`, end of the open chunk in the caption or -1,
#      used words of the caption as bits, matches)
# The first three are its rank; the smallest is the best. Plain tuples, because a caption has thousands of paths.
_Path = tuple[int, int, int, int, int, int, tuple[Match, ...]]
_rank = itemgetter(0, 1, 2)


def align(candidates: list[list[Match]], caption_length: int) -> tuple[list[Match], int]:
    """The best matches in the order of the reference, and the number of chunks.

    `candidates` has one list per word of the reference: the matches that begin there, best matcher first.
    """
    fixed = _fixed_positions(candidates, caption_length)
    paths: list[_Path] = [(0, 0, 0, 0, -1, 0, ())]
    for at, matches in enumerate(candidates):
        options = [(match, _covered(match), _caption_bits(match), abs(match.ref - match.start)) for match in matches]
        following: list[_Path] = []
        for path in paths[:BEAM]:
            cost, chunks, distance, begins, end, used, taken = path
            if begins > at:
                following.append(path)
                continue
            for match, covered, bits, shift in options:
                if not used & bits:
                    closed = chunks + (end not in (-1, match.start))
                    ends = at + match.ref_length, match.start + match.length
                    following.append((cost - covered, closed, distance, *ends, used | bits, (*taken, match)))
                    distance += shift
            if at not in fixed:
                following.append((cost, chunks + (end != -1), distance, at + 1, -1, used, taken))
        if len(following) > 1:
            following.sort(key=_rank)
        paths = following
    ended = [(cost, chunks + (end != -1), distance, taken) for cost, chunks, distance, _, end, _, taken in paths[:BEAM]]
    _, chunks, _, taken = min(ended, key=_rank)  # the first of equals, as in a stable sort
    return list(taken), chunks


def _covered(match: Match) -> int:
    """The covered words of caption and reference."""
    weight = WEIGHTS[match.matcher]
    return int(weight * match.length) + int(weight * match.ref_length)


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
