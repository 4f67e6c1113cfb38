"""The stemmer gives the stems of the jar's own Snowball stemmer."""

from __future__ import annotations

import pytest

from captioner.metrics.meteor.stem import stem

# Recorded from org.tartarus.snowball.ext.englishStemmer of meteor-1.5.jar.
RECORDED = """
    riding:ride rides:ride babies:babi flies:fli watches:watch glasses:glass bikes:bike running:run hopping:hop
    dying:die skies:sky early:earli news:news inning:inning succeed:succeed generously:generous communism:communism
    realization:realiz sensationally:sensat rotationally:rotat national:nation hopefulness:hope
    conditional:condit relational:relat electricity:electr formative:format adjustable:adjust
    replacement:replac adoption:adopt effective:effect controlling:control happily:happili knightly:knight
    cries:cri tie:tie ties:tie gas:gas this:this gaps:gap agreed:agre feed:feed falling:fall
    say:say enjoy:enjoy youth:youth yes:yes by:by beautiful:beauti apology:apolog radically:radic
"""


@pytest.mark.parametrize("case", RECORDED.split())
def test_stems_are_those_of_the_jar(case: str) -> None:
    word, expected = case.split(":")
    assert stem(word) == expected
