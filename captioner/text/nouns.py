"""Find the words of a caption that name an object category: one of COCO's 80, a drawn shape, or any other label.

Words with another common meaning (orange, glass, board, ski) are in no list: figures about fewer nouns are better than
figures about wrong ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

# category: its names in captions. Regular plurals are added.
_NAMES = {
    "person": "person, people, man, men, woman, women, boy, girl, child, children, kid, baby, toddler, guy, lady, "
    "gentleman, gentlemen, player, surfer, skateboarder, skater, skier, snowboarder, rider, batter, umpire, "
    "biker, cyclist, motorcyclist, pedestrian, teenager, adult, crowd",
    "bicycle": "bicycle, bike",
    "car": "car, suv, sedan, taxi, cab",
    "motorcycle": "motorcycle, motorbike, moped, motor bike",
    "airplane": "airplane, plane, jet, aeroplane, airliner, jetliner, biplane, aircraft, jumbo jet",
    "bus": "bus",
    "train": "train, locomotive",
    "truck": "truck, lorry, pickup, fire truck, firetruck, pickup truck, semi truck",
    "boat": "boat, ship, canoe, kayak, sailboat, sail boat, ferry, yacht, rowboat, row boat, gondola",
    "traffic light": "traffic light, stoplight, stop light, traffic signal",
    "fire hydrant": "fire hydrant, hydrant",
    "stop sign": "stop sign",
    "parking meter": "parking meter, meter",
    "bench": "bench",
    "bird": "bird, duck, goose, geese, seagull, pigeon, parrot, owl, eagle, swan, gull, pelican, hawk",
    "cat": "cat, kitten, kitty",
    "dog": "dog, puppy",
    "horse": "horse, pony, foal",
    "sheep": "sheep, lamb, ewe",
    "cow": "cow, cattle, bull, calf, calves, ox, oxen",
    "elephant": "elephant",
    "bear": "bear, polar bear, brown bear, black bear",
    "zebra": "zebra",
    "giraffe": "giraffe",
    "backpack": "backpack, back pack, knapsack, rucksack",
    "umbrella": "umbrella, parasol",
    "handbag": "handbag, hand bag, purse",
    "tie": "tie, necktie, neck tie, bow tie",
    "suitcase": "suitcase, suit case, luggage",
    "frisbee": "frisbee",
    "skis": "skis",
    "snowboard": "snowboard, snow board",
    "sports ball": "ball, soccer ball, tennis ball",
    "kite": "kite",
    "baseball bat": "bat, baseball bat",
    "baseball glove": "baseball glove, baseball mitt, catcher 's mitt",
    "skateboard": "skateboard, skate board",
    "surfboard": "surfboard, surf board",
    "tennis racket": "racket, racquet, tennis racket, tennis racquet",
    "bottle": "bottle",
    "wine glass": "wine glass, wineglass",
    "cup": "cup, mug",
    "fork": "fork",
    "knife": "knife, knives",
    "spoon": "spoon",
    "bowl": "bowl",
    "banana": "banana",
    "apple": "apple",
    "sandwich": "sandwich, burger, hamburger, cheeseburger",
    "orange": "oranges",
    "broccoli": "broccoli",
    "carrot": "carrot",
    "hot dog": "hot dog, hotdog",
    "pizza": "pizza",
    "donut": "donut, doughnut",
    "cake": "cake, cupcake",
    "chair": "chair, armchair",
    "couch": "couch, sofa, loveseat",
    "potted plant": "potted plant, houseplant, house plant",
    "bed": "bed",
    "dining table": "table, dining table, dinner table, kitchen table, dining room table",
    "toilet": "toilet",
    "tv": "tv, television, flat screen tv, television set",
    "laptop": "laptop, laptop computer",
    "mouse": "mouse, computer mouse",
    "remote": "remote, remote control, wii remote, controller, wii controller",
    "keyboard": "keyboard, computer keyboard",
    "cell phone": "cell phone, cellphone, phone, mobile phone, smartphone, smart phone, iphone",
    "microwave": "microwave, microwave oven",
    "oven": "oven, stove, stovetop",
    "toaster": "toaster",
    "sink": "sink",
    "refrigerator": "refrigerator, fridge",
    "book": "book",
    "clock": "clock",
    "vase": "vase",
    "scissors": "scissors",
    "teddy bear": "teddy bear, teddy, stuffed bear",
    "hair drier": "hair drier, hair dryer, blow dryer",
    "toothbrush": "toothbrush, tooth brush",
    "circle": "circle",
    "square": "square",
    "triangle": "triangle",
    "star": "star",
    "cross": "cross",
}
# Phrases that contain one of the names above but mean something else.
_OTHER_THINGS = (
    "train station, train track, train yard, train platform, bus stop, bus station, bus driver, truck driver, "
    "train conductor, bike rack, bike lane, bike path, parking lot, toilet paper, toilet brush, toilet tank, "
    "tv stand, television stand, tv show, coffee table, pool table, picnic table, table cloth, bed spread, "
    "bed room, bird house, bird cage, bird bath, bird feeder, dog house, apple tree, banana tree, "
    "horse carriage, book shelf, book case, chair lift, clock tower, oven mitt, pizza box, pizza pan, pizza cutter, "
    "pizza oven, cake pan, phone booth, phone box, town square, city square, car seat, boat dock, boat house"
)
# Frequent nouns of captions that are no category, to find nouns that a caption repeats.
_OTHER_NOUNS = (
    "airport animal area arm bag bar base basket bathroom bathtub beach bedroom beer blanket body box branch "
    "bread bridge building bun bush cabinet camera candle cart church city cloud computer container counter court "
    "curb curtain desk dirt dish door dress drink engine face family fence field fireplace flag floor flower food "
    "forest fruit furniture game garden gate grass ground hat hay helmet highway hill hillside home hotel house "
    "image intersection jacket kitchen lake lamp leash leaf leaves ledge market mirror monitor mountain mouth "
    "ocean office park pasture photo photograph picture pillow pole pond pot ramp restaurant river road rock roof "
    "room rug runway salad sand school shelf shelves shirt shoe shop shore shower sidewalk sky slope snow soup "
    "statue stone store street suit sun tarmac team towel tower town toy trail tray tree tub uniform van "
    "vegetable vehicle wall water wave window"
)
_IRREGULAR_PLURALS = {
    "child": "children",
    "person": "people",
    "foot": "feet",
    "goose": "geese",
    "leaf": "leaves",
    "shelf": "shelves",
    "wolf": "wolves",
    "sheep": "sheep",
    "fish": "fish",
    "deer": "deer",
}
# Words that name nothing visible. Deletion leaves them out.
_FUNCTION_WORDS = (
    "a an the this that these those some any each every all both one two three of on in at to by with for from into "
    "onto over under up down out off and or but as is are was were be being been has have having it its his her "
    "their there who which while next near around between through along behind front top left right side other "
    "another very no not s 's"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
# The categories whose names in captions are known: all that boxes of a kind of data can have.
SHAPES = frozenset({"circle", "square", "triangle", "star", "cross"})
COCO_CATEGORIES = frozenset(_NAMES) - SHAPES


def is_content_word(text: str) -> bool:
    """Whether a word names something: not "a", "of" or a token such as `<unk>`."""
    return text.lower() not in FUNCTION_WORDS and not text.startswith("<")


_NOUNS = frozenset(_NAMES) | frozenset(_OTHER_NOUNS.split())


@dataclass(frozen=True)
class Mention:
    """Words `first` to `last - 1` of a caption name a category."""

    first: int
    last: int
    label: str


def mentions(words: Sequence[str], labels: Collection[str]) -> list[Mention]:
    """The categories in `labels` that a sentence names. The longest phrase at each position wins.

    A longer phrase hides a shorter name inside it even if its own category is not in `labels`: a teddy bear is no bear.
    """
    phrases = _phrases(frozenset(labels))
    longest = max(map(len, phrases))
    lowered = [word.lower() for word in words]
    mentions, position = [], 0
    while position < len(lowered):
        lengths = range(min(longest, len(lowered) - position), 0, -1)
        length = next((n for n in lengths if tuple(lowered[position : position + n]) in phrases), 0)
        if length:
            label = phrases[tuple(lowered[position : position + length])]
            if label is not None:
                mentions.append(Mention(position, position + length, label))
        position += max(length, 1)
    return mentions


def repeated_nouns(words: Sequence[str]) -> int:
    """How many times a caption names something by words that it has named something by before.

    The nouns are the names of the categories in the table and other frequent nouns of captions.
    """
    names = [" ".join(words[mention.first : mention.last]).lower() for mention in mentions(words, _NOUNS)]
    return len(names) - len(set(names))


_Phrases = dict[tuple[str, ...], str | None]


@lru_cache(maxsize=8)
def _phrases(labels: frozenset[str]) -> _Phrases:
    """Every known phrase with its label; None if the label is not in `labels`."""
    by_lower_case = {label.lower(): label for label in labels}
    phrases: _Phrases = {}
    for lowered, label in by_lower_case.items():  # first, because the names of the table take precedence
        _add(phrases, [lowered.replace("_", " ").replace("-", " ")], label)
    for name, names in _NAMES.items():
        if name in by_lower_case:  # the table decides: "orange" alone is a color
            phrases.pop(tuple(name.split()), None)
        _add(phrases, names.split(", "), by_lower_case.get(name))
    _add(phrases, _OTHER_THINGS.split(", "), None)
    for lowered, label in by_lower_case.items():  # labels that the table doesn't have as categories, such as "man"
        if lowered not in _NAMES:
            _add(phrases, [lowered.replace("_", " ").replace("-", " ")], label)
    return phrases


def _add(phrases: _Phrases, names: list[str], label: str | None) -> None:
    for name in names:
        *before, noun = name.split()
        for form in (noun, plural(noun)):
            phrases[tuple(before) + (form,)] = label  # noqa: RUF005 (a starred index is not Python 3.10)


def plural(noun: str) -> str:
    """The plural: irregular where the noun is in a short list, else regular."""
    if noun in _IRREGULAR_PLURALS:
        return _IRREGULAR_PLURALS[noun]
    if noun.endswith("man") and noun not in ("human", "german"):
        return f"{noun[:-3]}men"
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
