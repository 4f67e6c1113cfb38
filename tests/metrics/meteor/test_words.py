"""The words METEOR sees; what is recorded is what meteor-1.5.jar -norm printed in its alignments."""

from __future__ import annotations

import pytest

from captioner.metrics.meteor.words import meteor_words

RECORDED = [
    ("xx st. 5th", "xx st . 5th"),
    ("xx st. yy", "xx st. yy"),
    ("xx st.", "xx st ."),
    ("xx p.m. 's", "xx pm ' s"),
    ("xx ph.d. yy", "xx phd yy"),
    ("xx t.v.v", "xx t.v.v"),
    ("xx ca n't 've o'clock y' all", "xx ca n 't ' ve o 'clock y ' all"),
    ("jack-o-lantern a-b-c-d 10-foot -5 a- -a", "jack o-lantern a b-c d 10 foot -5 a- -a"),
    ("6:10 his/her a_b 1/2 at&t #tag", "6 : 10 his / her a _ b 1 / 2 at & t # tag"),
    ("1,000 1,a .5 32.30 5%", "1,000 1 , a .5 32.30 5 %"),
    ("-lrb- x -rrb- ?? !!!", "-lrb- x -rrb- ? ? ! ! !"),
    ("rock 'n' roll x'y'z", "rock ' n ' roll x 'y'z"),
    ("naïve straße привет 日本語", "naïve straße привет 日 本 語"),
    ("x... y.. a--b", "x ... y .. a b"),
]


@pytest.mark.parametrize(("caption", "words"), RECORDED)
def test_words_equal_those_of_the_jar(caption: str, words: str) -> None:
    assert meteor_words(caption) == words.split()
