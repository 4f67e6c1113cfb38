"""Sentences for readers: joined words, a capital and a full stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.text.sentences import sentence
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ("a man riding a wave on a surfboard in the ocean", "A man riding a wave on a surfboard in the ocean."),
        ("a dog 's tail does n't move", "A dog's tail doesn't move."),
        ("i think i 'm in it", "I think I'm in it."),
        ("they 're gon na go", "They're gonna go."),
        ("you can not park here", "You cannot park here."),
        ("two dogs ' bowls", "Two dogs' bowls."),
        ("a t-shirt -lrb- red -rrb- on a bed", "A t-shirt (red) on a bed."),
        ("a flag of the u.s.", "A flag of the u.s."),
        ("a sign for $ 5", "A sign for $5."),
        ("2 cats", "2 cats."),
        ("élan on a boat", "Élan on a boat."),
        ("<unk> on a table", "<unk> on a table."),
        ("", ""),
    ],
)
def test_tokens_become_a_sentence(tokens: str, expected: str) -> None:
    assert sentence(tokens.split()) == expected


@pytest.mark.parametrize(
    "text", ["A man doesn't see the dog's ball.", "I can't say what they've seen.", "A cat (black) sits on a mat."]
)
def test_a_tokenized_sentence_comes_back(text: str) -> None:
    assert sentence(tokenize(text)) == text


def test_joining_plain_words_gives_what_the_detokenizer_gives() -> None:
    """Captions of plain words are joined without nltk, which is slow to load. Every word of the model is tried."""
    from nltk.tokenize.treebank import TreebankWordDetokenizer

    words = Vocabulary.load(Path(__file__).parents[2] / "weights" / "default" / "vocabulary.json").words
    detokenizer = TreebankWordDetokenizer()
    for first, second in zip(words, words[1:] + words[:1], strict=True):
        for tokens in (["a", first, "of", second], ["can", first], ["gon", first], ["lem", first], ["more", first]):
            joined = detokenizer.detokenize(tokens)
            if first.isalpha() and second.isalpha() and first.isascii() and second.isascii():
                assert sentence(tokens).rstrip(".").lower() == joined.rstrip(".").lower(), tokens
