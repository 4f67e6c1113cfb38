"""The tokenizer for training and for scoring: Penn Treebank tokens, lower-cased, without punctuation.

It gives the tokens that the field's scorer, pycocoevalcap, takes from the Stanford PTBTokenizer, but without Java. That
is why it is our own code: scores depend on the tokens, and nltk's Treebank tokenizer treats full stops and quotes
differently. `scripts/compare_tokenizer` measures the agreement with the Java tokenizer.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Tokens that pycocoevalcap drops. Brackets stay, as "-lrb-" etc., because its list has them in upper case only.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

# Abbreviations that always keep their full stop.
_ABBREVIATIONS = """
    al cf co ct dr ft ga jr ky lt md mo mr ms mt ph rd rt sq sr st va vs vt wm adj adm adv ala apr aug ave
    bhd cie col cos cpl dak dec det drs ens esq est etc ext feb fla fri gen gov hon inc ind jan jos jul
    jun kan ltd maj mar mme mon mrs neb nev nov oct pfc plc pvt rep rev sen sep seq sfc sgt spc ste sys
    tel thu tue wed wis wyo alex ariz assn asst atty bldg blvd brig bros capt cmdr colo conn corp dept
    elec govs insp intl invt kans mich minn mlle mont msgr natl okla penn pres prof reps sens sept supt
    tenn tues univ wisc calif lieut thurs assoc messrs comdr treas mfg mtg pte pty ppte ppty ptes ptys
"""
# Abbreviations that keep it only with a capital: "Ill." is a state, "ill." ends a sentence.
_STATES = "Az La Pa Ark Del Ill Ore Tex Mass Miss Wash"
# Abbreviations that keep it only before a number: "no. 5".
_NUMBERED = "ca no op pp art fig nos figs prop"
# Capitalized words that start a sentence: a single letter before them loses its full stop.
_SENTENCE_STARTERS = """
    About According Additionally After A An As At But Earlier He Her Here However If In It Last Many More
    Now Once One Other Our She Since So Some Such That The Their Then There These They This We What When
    While Yet You
"""
_STARTERS = frozenset(_SENTENCE_STARTERS.split())
# Written as one word, split into two tokens.
_FUSED = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "wanna": ("wan", "na"),
    "gimme": ("gim", "me"),
    "lemme": ("lem", "me"),
}
_NAMED = {
    '"': "''",
    "(": "-lrb-",
    ")": "-rrb-",
    "[": "-lsb-",
    "]": "-rsb-",
    "{": "-lcb-",
    "}": "-rcb-",
}

_LETTER = r"[^\W\d_]"
_WORD = r"[^\W_]+"  # letters and digits of any script
_ENDS = r"(?![^\W_])"  # no letter or digit follows
_CLITIC = rf"'(?:s|d|m|ll|re|ve){_ENDS}"


def _any_of(words: str) -> str:
    return "|".join(words.split())


# At each position of a text the longest match is the token.
_RULES = tuple(
    re.compile(pattern)
    for pattern in (
        r"</?[A-Za-z!?][^<>]*>",  # markup, such as <unk>
        r"https?://[^\s\"<>|()]+[^\s\"<>|.!?,;:()'-]",
        r"[A-Za-z0-9][\w.+-]*@[A-Za-z0-9](?:[\w.-]*\w)?",  # mail
        rf"@{_LETTER}[\w]*|#{_LETTER}+",
        r"[A-Z]+(?:&[A-Z]+)+|[Cc](?:\+\+|#)",  # AT&T
        rf"{_LETTER}(?:\.{_LETTER})+\.{_ENDS}",  # u.s.a.
        rf"(?:(?i:{_any_of(_ABBREVIATIONS)}|[a-z])|(?:{_any_of(_STATES)}))\.{_ENDS}",
        rf"(?i:{_any_of(_NUMBERED)})\.(?=\d)",
        rf"{_WORD}\.(?=[,;:])",  # before , ; : any word with a full stop counts as an abbreviation
        rf"{_WORD}(?:[-_]{_WORD})*",  # t-shirt
        r"[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*",  # and/or
        rf"\d+(?:[.,]\d+)+-{_WORD}",  # 2.5-inch
        rf"{_LETTER}[^\W_]*(?:[.!?]{_LETTER}[^\W_]*)*(?:-{_WORD})*",  # example.com, and stops without a space
        rf"(?i:n['`]t{_ENDS})",
        rf"(?i:{_CLITIC})",
        rf"(?i:'t(?=(?:is|was)(?:n't)?{_ENDS}))",
        rf"(?i:[dlo]'(?!{_CLITIC[1:]}){_LETTER}+(?:-{_WORD})*|c'mon|li'l|n?e'er|ol'|dunkin'|y'(?={_LETTER}))",
        rf"[A-HJ-XZn]'{_LETTER}{{2,}}",
        rf"(?![yY]'){_LETTER}*[aeiouyAEIOUY](?!(?i:{_CLITIC}))'[aeiouA-Z]{_LETTER}*",  # ma'am
        rf"(?i:'(?:n'|n{_ENDS}|em|till?|cause|[2-9]0s|\d\d{_ENDS}))",
        r"[-+]?\d*(?:[.,:]\d+)+|[-+]\d+",
        r"\.{3,}|--+|[!?]{2,}|\*+|''|``",
        r"\S",
    )
)
_NEGATED = re.compile(rf"(?i:{_LETTER}+?(?=n['`]t{_ENDS}))")  # do|n't

_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‛‹›", "'"),
        **dict.fromkeys("“”«»", '"'),
        **dict.fromkeys("–—―", " -- "),
        **dict.fromkeys("\u00ad\u200b\u200e\u200f\u2060\ufeff\ufe0e\ufe0f", None),  # invisible
        **{"…": "...", "¢": " cents ", "£": "#", "€": "$", "¤": "$"},
        **{"½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 ", "⅓": " 1/3 ", "⅔": " 2/3 "},
    }
)
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&"}


def tokenize(text: str) -> list[str]:
    """The tokens of a caption in any language. Line breaks count as spaces."""
    if not text.isascii():
        text = text.translate(_TYPOGRAPHY)
    if "&" in text:
        for entity, character in _ENTITIES.items():
            text = text.replace(entity, character)
    chunks = text.split()
    tokens: list[str] = []
    for i, chunk in enumerate(chunks, 1):
        following = chunks[i] if i < len(chunks) else "A"  # the Java tokenizer reads one caption after another
        tokens.extend(_chunk_tokens(chunk, following in _STARTERS, following[0].isdigit()))
    return tokens


@lru_cache(maxsize=1 << 16)
def _chunk_tokens(chunk: str, before_sentence: bool, before_number: bool) -> tuple[str, ...]:
    """The tokens of a piece of text without spaces."""
    if before_number and chunk[-1] == "." and chunk[:-1].lower() in _NUMBERED.split():
        return (chunk.lower(),)
    shape = chunk if chunk.isascii() else _with_marks_as_letters(chunk)
    tokens: list[str] = []
    at = 0
    while at < len(chunk):
        negated = _NEGATED.match(shape, at)
        end = negated.end() if negated else max(m.end() for rule in _RULES if (m := rule.match(shape, at)))
        token = chunk[at:end].lower()
        at = end
        if before_sentence and at == len(chunk) and len(token) == 2 and token[1] == ".":
            token = token[0]
        if token in _FUSED:
            tokens.extend(_FUSED[token])
        elif token[:3] not in ("...", "---") and (token := _NAMED.get(token, token)) not in PUNCTUATION:
            tokens.append(token)
    return tuple(tokens)


def _with_marks_as_letters(chunk: str) -> str:
    """A string of the same length for the rules, in which vowel signs and accents count as letters of their word."""
    shape = ""
    for character in chunk:
        joins = unicodedata.category(character)[0] == "M" or character in "\u200c\u200d"
        shape += "\u00aa" if joins and shape and shape[-1].isalnum() else character
    return shape
