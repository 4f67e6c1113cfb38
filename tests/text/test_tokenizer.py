"""The tokenizer gives the tokens of the Java one; what is recorded here is that tokenizer's answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.text.tokenizer import tokenize

# Left: a caption. Right: stanford-corenlp-3.4.1's PTBTokenizer -preserveLines -lowerCase, without the tokens
# on pycocoevalcap's list of punctuation.
RECORDED = [
    ("A man riding a wave.", "a man riding a wave"),
    ("the man's dogs' toys at 7 o'clock", "the man 's dogs toys at 7 o'clock"),
    ("don't can't cannot gonna wanna isn't DON'T", "do n't ca n't can not gon na wan na is n't do n't"),
    ("y'all ma'am rock'n'roll", "y' all ma'am rock 'n' roll"),
    ("'tis 'twas 'em 'til 'cause", "'t is 't was 'em 'til 'cause"),
    ("t-shirt, black-and-white and/or 30-year-old", "t-shirt black-and-white and/or 30-year-old"),
    ("7:30 a.m., 12,000 of 3.5 or 1/2", "7:30 a.m. 12,000 of 3.5 or 1/2"),
    ("1990's '90s 80s '65", "1990 's '90s 80s '65"),
    ("$5 5% #hashtag @home a&b AT&T", "$ 5 5 % #hashtag @home a & b at&t"),
    ("(hello) [world] {foo}", "-lrb- hello -rrb- -lsb- world -rsb- -lcb- foo -rcb-"),
    ("he said \"hello\" 'hello'", "he said hello hello"),
    ("e.g. i.e. etc. Mr. Smith Dr. Who", "e.g. i.e. etc. mr. smith dr. who"),
    ("hello...world hello,world hello;world hello!world", "hello world hello world hello world hello!world"),
    ("-dash --dash a - b a--b", "dash dash a b a b"),
    ("_a under_score a*b a=b", "_ a under_score a * b a = b"),
    ("girl'friend x'y should've who'd've", "girl friend x y should 've who 'd 've"),
    ("5'6\" 6' 7\"", "5 6 6 7"),
    ("No. 5 no. fig.5", "no. 5 no fig. 5"),
    ("St. Louis Ave. S. in Ill. is ill.", "st. louis ave. s. in ill. is ill"),
    ("hydrant I. The street P. Smith", "hydrant i the street p. smith"),
    ("hello., there", "hello. there"),
    ("what!! really?? no...", "what !! really ?? no"),
    ("10:30pm 2.5-inch a,1", "10:30 pm 2.5-inch a ,1"),
    ("RAY'S walk/don't O'Brien's D'Angelo", "ray 's walk/don t o'brien 's d'angelo"),
    ("www.google.com google.com", "www.google.com google.com"),
    ("&quot;hi&quot; &amp; bye", "hi & bye"),
    ("a colour photo of a grey theatre", "a colour photo of a grey theatre"),
    ("ñandú über façade 日本語 привет мир", "ñandú über façade 日本語 привет мир"),
    ("don’t it’s “hello” ‘hi’ dogs’ – — …", "do n't it 's hello hi dogs"),
    ("£5 and 5¢ and 2½", "# 5 and 5 cents and 2 1/2"),
]


@pytest.mark.parametrize(("caption", "tokens"), RECORDED)
def test_tokens_are_those_of_the_java_tokenizer(caption: str, tokens: str) -> None:
    assert tokenize(caption) == tokens.split()


def test_a_text_without_words_has_no_tokens() -> None:
    assert tokenize("") == tokenize(" \n\t ") == tokenize("...") == tokenize(".\" ' -- !") == []


def test_a_line_break_is_a_space() -> None:
    assert tokenize("two\nlines\r\nhere\u2028now") == ["two", "lines", "here", "now"]


def test_the_unknown_word_is_one_token() -> None:
    assert tokenize("a <unk> on a <unk>.") == ["a", "<unk>", "on", "a", "<unk>"]


def test_signs_that_belong_to_a_word_stay_in_it() -> None:
    assert tokenize("हिन्दी में cafe\u0301 می‌خواهم") == ["हिन्दी", "में", "cafe\u0301", "می‌خواهم"]


def test_emoji_are_tokens_of_their_own() -> None:
    assert tokenize("a dog😀 ❤\ufe0f") == ["a", "dog", "😀", "❤"]


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), max_size=40))
def test_no_letter_is_lost_or_changed(text: str) -> None:
    text = text.replace("&", " ").translate(str.maketrans("½¼¾⅓⅔", "     "))
    kept = "".join(c for c in "".join(tokenize(text.translate(BRACKETS))) if c.isalpha())
    # A capital may become two characters, and one form of sigma depends on its neighbours.
    assert kept.casefold() == "".join(c for c in text.lower() if c.isalpha()).casefold()


BRACKETS = str.maketrans("()[]{}<>", " " * 8)


@given(st.text(max_size=60))
def test_any_text_gives_tokens_without_spaces(text: str) -> None:
    assert all(token and not token.isspace() and token.split() == [token] for token in tokenize(text))


def test_the_tokenizer_imports_the_standard_library_only() -> None:
    heavy = "'numpy', 'torch', 'nltk', 'click', 'pycocoevalcap'"
    code = f"import sys, captioner.text.tokenizer; print([m for m in ({heavy}) if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.skipif(shutil.which("java") is None, reason="Java runs the tokenizer that ours is compared with")
def test_the_comparison_with_the_java_tokenizer_reports_agreement(tmp_path: Path) -> None:
    captions = [caption for caption, _ in RECORDED if caption.isascii()]
    annotations = [{"image_id": i // 2, "caption": caption} for i, caption in enumerate(captions)]
    (tmp_path / "captions.json").write_text(json.dumps({"annotations": annotations}))
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "scripts" / "compare_tokenizer"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "100.0000 % with the same tokens" in run.stdout
