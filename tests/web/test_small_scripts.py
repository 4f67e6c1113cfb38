"""Sentences, checksums and the table of captions: the scripts of the page against Python."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import random
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError
from captioner.text.sentences import sentence
from captioner.text.vocabulary import Vocabulary
from tests.serve.pictures import b64

VOCABULARY = Path(__file__).parents[2] / "weights" / "default" / "vocabulary.json"
CLITICS = ("'s", "n't", "'re", "'ve", "'ll", "'d", "'m")


def test_sentences_are_pythons_for_every_odd_word_of_the_vocabulary(scripts: Any):
    words = json.loads(VOCABULARY.read_text(encoding="utf-8"))["words"][4:]
    odd = [word for word in words if not word.replace("-", "").isalnum()]
    odd += [
        *CLITICS,
        "$",
        "%",
        "i",
        "can",
        "not",
        "gon",
        "na",
        "wan",
        "lem",
        "me",
        "got",
        "ta",
        "<unk>",
        "-lsb-",
        "-rsb-",
    ]
    choose = random.Random(0).choice
    cases = [[choose(words), first, second, choose(words)] for first, second in itertools.product(odd, odd)]
    cases += [list(pair) for pair in itertools.product(odd, odd)] + [
        [choose(words) for _ in range(8)] for _ in range(300)
    ]
    # Two such endings in a row are no English, and Python joins them in no order.
    cases = [case for case in cases if sum(word in CLITICS for word in case) < 2] + [[]]
    script = 'const { sentence } = await import("./sentences.js"); return args[0].map((words) => sentence(words));'
    assert scripts(script, cases) == [sentence(case) for case in cases]


def test_named_words_are_found_as_in_python(scripts: Any):
    words = ("<pad>", "<start>", "<end>", "<unk>", "dog", "cat", "t-shirt", "mr.", "'s", "5", "i")
    vocabulary = Vocabulary(words)
    shapes = ("{}", " {} ", "{}.", "{}!", "{}?", "{},", "{};", "{}...", '"{}"', "'{}'", "“{}”", "{}!!", "({})", "-{}")
    cases = [shape.format(word) for shape in shapes for word in ("dog", "Dog", "t-shirt", "zebra", "dog cat", "5")]
    cases += ["mr.", "Mr.", "'s", "I", "i.", "<unk>", "", "."]

    def number(word: str) -> int | None:
        try:
            return vocabulary.number(word)
        except CaptionerError:
            return None

    script = """const { Vocabulary } = await import("./constraints.js");
const vocabulary = new Vocabulary({ words: args[0], recurring: [] });
return args[1].map((word) => vocabulary.number(word) ?? null);"""
    found = dict(zip(cases, scripts(script, words, cases), strict=True))
    assert found == {word: number(word) for word in cases}
    assert found["dog."] == found['"dog"'] == found["Dog!"] == words.index("dog")


def test_checksums_without_the_browsers_help_are_sha256(scripts: Any):
    generator = random.Random(1)
    cases = [generator.randbytes(length) for length in (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000)]
    script = """const { sha256 } = await import("./checksum.js");
Object.defineProperty(crypto, "subtle", { value: undefined, configurable: true });
const sums = [];
for (const text of args[0]) sums.push(await sha256(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));
delete crypto.subtle;
sums.push(await sha256(new Uint8Array(3)));
return sums;"""
    expected = [hashlib.sha256(case).hexdigest() for case in (*cases, bytes(3))]
    assert scripts(script, [b64(case) for case in cases]) == expected


def test_a_table_is_read_back_whatever_the_names_are(scripts: Any):
    names = ["a.jpg", 'quote".jpg', "comma, and\nline.jpg", "=1+1.jpg", "-é—.jpg", ""]
    rows = [
        {"image": name, "caption": "a cat", "sentence": "A cat.", "confidence": None, "score": -1.5} for name in names
    ]
    text = scripts('return (await import("./caption_table.js")).captionTable(args[0]);', rows)
    table = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["image"] for row in table] == [f"'{name}" if name[:1] in ("=", "-") else name for name in names]
    assert {(row["rank"], row["confidence"], row["score"], row["log_probability"]) for row in table} == {
        ("1", "", "-1.5", "")
    }
