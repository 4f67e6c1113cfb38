"""The vocabulary: which words are learnt, how captions become numbers and come back, what a file must hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.caption_set import CaptionSet, Item
from captioner.errors import CaptionerError
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL, Vocabulary


def build(*captions: str, minimum_count: int = 1) -> Vocabulary:
    return Vocabulary.build(captions, minimum_count=minimum_count)


def test_words_are_sorted_by_count_then_by_spelling_after_the_special_tokens() -> None:
    words = build("a dog a cat", "a cat", "zebu b").words
    assert words == ("<pad>", "<start>", "<end>", "<unk>", "a", "cat", "b", "dog", "zebu")


def test_words_below_the_minimum_count_are_left_out() -> None:
    captions = ["dog"] * 5 + ["cat"] * 4
    vocabulary = build(*captions, minimum_count=5)
    assert "dog" in vocabulary and "cat" not in vocabulary
    assert vocabulary.encode("a Dog, no cat!") == [vocabulary.unk, 4, vocabulary.unk, vocabulary.unk]


def test_a_word_is_recurring_if_one_in_twenty_of_its_captions_has_it_twice() -> None:
    dogs, cats = ["dog bites dog"] * 3 + ["a dog"] * 57, ["cat, cat and cat"] * 3 + ["the cat"] * 58
    rare = (
        ["of a mat of a hat"] * 3 + ["emu by emu"] * 2 + ["emu"] * 3 + ["yak yak"] * 3 + ["zebu zebu <end> <end>"] * 3
    )
    vocabulary = build(*dogs, *cats, *rare, minimum_count=5)
    # dog in 3 of 60, cat in 3 of 61, emu in 2 only.
    assert vocabulary.words[4:] == ("cat", "a", "dog", "the", "emu", "of", "yak", "zebu")
    assert vocabulary.recurring == {"dog", "a", "of", "yak", "zebu"}
    assert build(*dogs, minimum_count=61).recurring == {"dog"}


def test_words_of_other_splits_are_not_learnt() -> None:
    items = [Item(0, Path("0"), ("a dog",), "train"), Item(1, Path("1"), ("a zebra",), "val")]
    vocabulary = Vocabulary.build(CaptionSet("x", tuple(items)).split("train").captions(), minimum_count=1)
    assert vocabulary.words[4:] == ("a", "dog")


@pytest.mark.parametrize(
    ("caption", "back"),
    [
        ("Ein Mädchen läuft über die Straße.", "ein mädchen läuft über die straße"),
        ("Собака бежит по снегу!", "собака бежит по снегу"),
        ("개가 눈 위를 달린다", "개가 눈 위를 달린다"),
        ("Un café, à l'ombre", None),
        ("كلب يركض في الثلج", "كلب يركض في الثلج"),
        ("कुत्ता दौड़ रहा है", "कुत्ता दौड़ रहा है"),
        ("a 😀 face", "a 😀 face"),
    ],
)
def test_captions_in_other_languages_are_encoded_and_decoded(caption: str, back: str | None) -> None:
    vocabulary = build(caption)
    numbers = vocabulary.encode(caption)
    assert vocabulary.unk not in numbers
    assert vocabulary.decode(numbers) == (back or " ".join(tokenize(caption)))


@given(st.lists(st.text(), max_size=5))
def test_decoding_an_encoded_caption_gives_its_tokens(captions: list[str]) -> None:
    vocabulary = build(*captions)
    for caption in captions:
        # Words that look like a special token are the one exception: they must not act as one.
        expected = ["<unk>" if token in SPECIAL else token for token in tokenize(caption)]
        assert vocabulary.decode(vocabulary.encode(caption)) == " ".join(expected)


@pytest.mark.parametrize("special", SPECIAL)
def test_captions_that_spell_a_special_token_do_not_become_it(special: str) -> None:
    vocabulary = build(f"{special} a dog {special}", f"{special} a cat")
    assert vocabulary.words == (*SPECIAL, "a", "cat", "dog")
    assert vocabulary.encode(f"a {special} dog") == [4, vocabulary.unk, 6]


def test_decoding_stops_at_the_end_token_and_leaves_out_padding() -> None:
    vocabulary = build("a dog")
    assert vocabulary.decode([1, 4, 3, 5, 2, 4, 0, 0]) == "a <unk> dog"
    assert vocabulary.decode([]) == vocabulary.decode([2]) == ""


def test_a_saved_vocabulary_loads_unchanged_and_is_readable_text(tmp_path: Path) -> None:
    vocabulary = build("straße 猫 a dog's \u2028 x", "a")
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary
    text = (tmp_path / "vocabulary.json").read_text(encoding="utf-8")
    assert "straße" in text and "猫" in text
    assert json.loads(text)["words"] == list(vocabulary.words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a vocabulary file"),
        ('{"words": ["<pad>", "<st', "not a vocabulary file"),
        ("[]", "not a vocabulary file"),
        ('{"word": []}', "not a vocabulary file"),
        ('{"words": [], "recurring": "a"}', "`recurring` is not a list of words"),
        ('{"words": "abcdef", "recurring": []}', "`words` is not a list of words"),
        ('{"words": ["<pad>", "<start>", "<end>", "<unk>", 5], "recurring": []}', "`words` is not a list of words"),
        ('{"words": ["<pad>", "<start>", "<end>", "<unk>", "a"]}', "it has no entry 'recurring'"),
        ('{"words": ["a", "b", "c", "d"], "recurring": []}', "begins with"),
        ('{"words": ["<pad>", "<start>", "<end>", "<unk>", "a", "b", "a"], "recurring": []}', "lists a word twice: a"),
        ('{"words": ["<pad>", "<start>", "<end>", "<unk>", "a"], "recurring": ["A"]}', "a word that `words` lacks: A"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "vocabulary.json").write_text(text)
    with pytest.raises(CaptionerError, match=message) as error:
        Vocabulary.load(tmp_path / "vocabulary.json")
    assert "vocabulary.json" in str(error.value)


def test_bytes_that_are_no_text_and_a_missing_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("bytes.json", "gone.json"):
        with pytest.raises(CaptionerError, match=name):
            Vocabulary.load(tmp_path / name)


def test_a_word_named_by_a_user_is_found_whatever_its_case() -> None:
    vocabulary = build("a black dog")
    assert vocabulary.number("Dog") == vocabulary.number("dog.") == vocabulary.index["dog"]


def test_an_unknown_word_is_refused_with_similar_ones() -> None:
    vocabulary = build("a zebra eats grass on the grassland")
    with pytest.raises(CaptionerError, match=r"'zebbra' is not in the model's vocabulary\. Similar words: zebra\."):
        vocabulary.number("zebbra")
    with pytest.raises(CaptionerError, match=r"'xylophone' is not in the model's vocabulary\.$"):
        vocabulary.number("xylophone")


@pytest.mark.parametrize("word", [*SPECIAL, "", "black dog"])
def test_special_tokens_blanks_and_phrases_are_refused_as_words(word: str) -> None:
    with pytest.raises(CaptionerError, match="is not in the model's vocabulary"):
        build("a black dog").number(word)
