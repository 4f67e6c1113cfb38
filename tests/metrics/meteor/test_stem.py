"""Stems equal those of the Snowball stemmer inside METEOR's jar."""

from __future__ import annotations

import subprocess
import sys

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
    communization:communiz iodization:iodiz ionization:ioniz irrationality:irrat irrationally:irrat
    peptization:peptiz poetizer:poetiz quantization:quantiz realizations:realiz sensationalism:sensat
    solmization:solmiz stylization:styliz theorization:theoriz theorizer:theoriz vocationally:vocat
"""


@pytest.mark.parametrize("case", RECORDED.split())
def test_a_stem_equals_the_jars(case: str) -> None:
    word, expected = case.split(":")
    assert stem(word) == expected


def test_importing_the_metrics_and_the_command_line_does_not_import_nltk() -> None:
    code = (
        "import sys, captioner, captioner.cli, captioner.metrics.text_scores, captioner.metrics.rewards\n"
        "assert 'nltk' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_stemming_needs_no_nltk_data(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    assert stem.__wrapped__("surfboards") == "surfboard"
