"""Reports of the world: a document of several sentences, and the sentence that sums it up.

A report is about one event: a person opens, sells, closes or paints a thing in a town on a day. Sentences about something else, scenes of
the world, come before, between and after. The names of people and towns are made of syllables, so that most are new in every text: a
summary must copy them. The summary is a function of the event, so the best score is 100 %. A report is a pure function of (seed, index).
"""

from typing import NamedTuple

from seqloom.world.rng import GOLDEN, MASK, splitmix64, stream_state
from seqloom.world.scene import scene

REPORT_STREAM = 0x4E57
FIRST = (
    "Bra",
    "Cor",
    "Del",
    "Fen",
    "Gil",
    "Hol",
    "Jas",
    "Kor",
    "Lem",
    "Mar",
    "Nor",
    "Pel",
    "Rin",
    "Sol",
    "Tam",
    "Vel",
)
MIDDLE = ("a", "e", "i", "o", "u", "an", "el", "in", "or", "us")
LAST = ("ba", "da", "ger", "ka", "len", "mo", "ner", "ra", "sen", "ta", "vik", "wen")
TOWN = ("burg", "dale", "field", "ford", "ham", "port", "stad", "ville")
THINGS = ("bakery", "school", "bridge", "garden", "hotel", "museum", "library", "mill", "shop", "theatre")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ACTS = {  # verb of the summary: what the document says, with {who}, {thing}, {town}, {day}
    "opens": (
        "On {day} the doors of a new {thing} in {town} were open for the first time. The owner is {who}.",
        "{who} has worked for years on a {thing} in {town}. On {day} the first guests came in.",
    ),
    "sells": (
        "The {thing} in {town} has a new owner since {day}. {who} did not want to keep it.",
        "{who} was tired of the old {thing} in {town}. On {day} it went to another family.",
    ),
    "closes": (
        "On {day} {who} locked the {thing} in {town}. Nobody will go in again.",
        "The {thing} in {town} is empty now. {who} said goodbye to the last guests on {day}.",
    ),
    "paints": (
        "The {thing} in {town} was grey until {day}. Now it is blue, because {who} had a brush and some time.",
        "{who} bought forty buckets of colour. Since {day} the {thing} in {town} looks new.",
    ),
}
MAX_SCENES = 3


class Report(NamedTuple):
    """A document and its summary.

    >>> seqloom.world.report(0, 4).document
    'Coruska was tired of the old shop in Tamaville. On Friday it went to another family.'
    """

    document: str
    summary: str


def report(seed: int, index: int) -> Report:
    """The report with the given index in the infinite sequence of a seed.

    >>> seqloom.world.report(0, 0).summary
    'Tamelsen opens a bakery in Jasastad.'
    """
    state = stream_state(seed ^ REPORT_STREAM, index)

    def below(count: int) -> int:
        nonlocal state
        state = (state + GOLDEN) & MASK
        return splitmix64(state) * count >> 64

    def pick(items: tuple[str, ...]) -> str:
        return items[below(len(items))]

    who = pick(FIRST) + pick(MIDDLE) + pick(LAST)
    town = pick(FIRST) + pick(MIDDLE) + pick(TOWN)
    thing, day, act = pick(THINGS), pick(DAYS), pick(tuple(ACTS))
    event = pick(ACTS[act]).format(who=who, town=town, thing=thing, day=day)
    others = [
        scene(seed ^ REPORT_STREAM, index * MAX_SCENES + i).english for i in range(below(MAX_SCENES + 1))
    ]
    before = below(len(others) + 1)
    document = " ".join([*others[:before], event, *others[before:]])
    return Report(document, f"{who} {act} a {thing} in {town}.")
