"""Pictures of the world: one or two things with colour, size and place, drawn by a small rasteriser, with the caption that
they determine and the region of every thing.

A picture is a pure function of (seed, index). Of two things side by side the caption names the left one first, of two
things one above the other the upper one, and one of the two directions clearly exceeds the other: each picture has one caption.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.world.rng import GOLDEN, MASK, splitmix64, stream_state

STREAM = 0x51C7
SIDE = 48  # pixels
SAMPLES = 2  # of a pixel, in each direction
BIG = (17.0, 20.0)
SMALL = (9.5, 11.5)
CLEAR = 5.0  # pixels by which one direction exceeds the other
COLOURS = {
    "red": (205, 40, 40),
    "green": (50, 150, 60),
    "blue": (45, 80, 200),
    "black": (35, 35, 38),
    "white": (250, 250, 250),
    "grey": (135, 135, 140),
}
WOOD = (125, 85, 50)
LEAF = (90, 170, 70)
Colour = tuple[float, float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


class Thing(NamedTuple):
    """A thing of a picture: what it is, and where."""

    size: str
    colour: str
    noun: str
    box: Box


class Drawing(NamedTuple):
    """A picture with its caption. `words` are those of the caption without the full stop; `regions` has the thing that each word
    describes, None for words that describe none.

    >>> seqloom.world.drawing(seed=0, index=1).caption
    'A small grey tree is to the left of a small red box.'
    """

    pixels: np.ndarray  # (48, 48, 3) uint8
    caption: str
    words: tuple[str, ...]
    regions: tuple[int | None, ...]
    things: tuple[Thing, ...]

    @property
    def word_boxes(self) -> list[Box | None]:
        """The box of the thing that each word describes."""
        return [None if thing is None else self.things[thing].box for thing in self.regions]


class Canvas:
    """Pixels with several samples each; shapes are given in a unit square that is placed on a box."""

    def __init__(self, background: Colour):
        self.samples = np.empty((SIDE * SAMPLES, SIDE * SAMPLES, 3), np.float32)
        self.samples[:] = background

    def fill(
        self, box: Box, area: Box, inside: Callable[[np.ndarray, np.ndarray], np.ndarray], colour: Colour
    ) -> None:
        """Colours the samples of `area`, a part of the unit square, at which `inside(x, y)` is True."""
        left, top, right, bottom = box
        width, height = right - left, bottom - top
        x0, x1 = (round(SAMPLES * (left + width * edge)) for edge in (area[0], area[2]))
        y0, y1 = (round(SAMPLES * (top + height * edge)) for edge in (area[1], area[3]))
        x = ((np.arange(x0, x1) + 0.5) / SAMPLES - left) / width
        y = ((np.arange(y0, y1) + 0.5) / SAMPLES - top) / height
        part = self.samples[y0:y1, x0:x1]
        part[inside(*np.meshgrid(x, y))] = colour

    def rectangle(self, box: Box, area: Box, colour: Colour) -> None:
        self.fill(box, area, lambda x, y: np.ones(x.shape, bool), colour)

    def ellipse(self, box: Box, area: Box, colour: Colour, upper: bool = False) -> None:
        """The ellipse inside an area, or its upper half in one."""
        left, top, right, bottom = area
        middle = ((left + right) / 2, bottom if upper else (top + bottom) / 2)
        radii = ((right - left) / 2, (bottom - top) / (1 if upper else 2))
        self.fill(
            box,
            area,
            lambda x, y: ((x - middle[0]) / radii[0]) ** 2 + ((y - middle[1]) / radii[1]) ** 2 <= 1,
            colour,
        )

    def polygon(self, box: Box, corners: Sequence[tuple[float, float]], colour: Colour) -> None:
        """A convex polygon, its corners clockwise as seen."""

        def inside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            found = np.ones(x.shape, bool)
            for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
                found &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
            return found

        xs, ys = zip(*corners, strict=True)
        self.fill(box, (min(xs), min(ys), max(xs), max(ys)), inside, colour)

    def pixels(self) -> np.ndarray:
        """(48, 48, 3) float: the mean of the samples of each pixel."""
        return self.samples.reshape(SIDE, SAMPLES, SIDE, SAMPLES, 3).mean((1, 3))


def shade(colour: Colour, factor: float = 0.55) -> Colour:
    """A darker colour, and for one that is nearly black a lighter one."""
    if sum(colour) < 150:
        return 95.0, 95.0, 100.0
    return colour[0] * factor, colour[1] * factor, colour[2] * factor


def house(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.12, 0.45, 0.88, 1), colour)
    canvas.polygon(box, [(0.5, 0), (1, 0.45), (0, 0.45)], shade(colour))
    canvas.rectangle(box, (0.42, 0.66, 0.6, 1), shade(colour))


def tree(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.41, 0.6, 0.59, 1), WOOD)
    canvas.ellipse(box, (0.06, 0, 0.94, 0.72), colour)


def car(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.polygon(box, [(0.32, 0.16), (0.7, 0.16), (0.86, 0.45), (0.18, 0.45)], shade(colour))
    canvas.rectangle(box, (0, 0.42, 1, 0.76), colour)
    for left in (0.1, 0.62):
        canvas.ellipse(box, (left, 0.64, left + 0.28, 0.92), (20.0, 20.0, 20.0))


def boat(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.42, 0.02, 0.48, 0.64), WOOD)
    canvas.polygon(box, [(0.5, 0.05), (0.92, 0.56), (0.5, 0.56)], shade(colour))
    canvas.polygon(box, [(0, 0.64), (1, 0.64), (0.8, 0.96), (0.2, 0.96)], colour)


def crate(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.06, 0.06, 0.94, 0.94), colour)
    canvas.rectangle(box, (0.44, 0.06, 0.56, 0.94), shade(colour))
    canvas.rectangle(box, (0.06, 0.44, 0.94, 0.56), shade(colour))


def apple(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.47, 0.02, 0.54, 0.3), WOOD)
    canvas.ellipse(box, (0.54, 0.04, 0.84, 0.22), LEAF)
    canvas.ellipse(box, (0.08, 0.2, 0.92, 0.98), colour)


def book(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.polygon(box, [(0, 0.2), (0.48, 0.34), (0.48, 0.94), (0, 0.8)], colour)
    canvas.polygon(box, [(0.52, 0.34), (1, 0.2), (1, 0.8), (0.52, 0.94)], colour)
    canvas.rectangle(box, (0.46, 0.34, 0.54, 0.96), shade(colour))


def lamp(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.46, 0.5, 0.54, 0.9), WOOD)
    canvas.rectangle(box, (0.24, 0.88, 0.76, 1), shade(colour))
    canvas.polygon(box, [(0.3, 0.02), (0.7, 0.02), (0.96, 0.52), (0.04, 0.52)], colour)


def umbrella(canvas: Canvas, box: Box, colour: Colour) -> None:
    canvas.rectangle(box, (0.47, 0.4, 0.53, 1), WOOD)
    canvas.ellipse(box, (0, 0.08, 1, 0.56), colour, upper=True)
    canvas.rectangle(box, (0.3, 0.94, 0.5, 1), WOOD)


SHAPES: dict[str, Callable[[Canvas, Box, Colour], None]] = {
    "house": house,
    "tree": tree,
    "car": car,
    "boat": boat,
    "box": crate,
    "apple": apple,
    "book": book,
    "lamp": lamp,
    "umbrella": umbrella,
}
LEFT_OF = ("is", "to", "the", "left", "of")
ABOVE = ("is", "above")


class Draws:
    """Random numbers of one picture."""

    def __init__(self, seed: int, index: int):
        self.state = stream_state(seed ^ STREAM, index)

    def number(self) -> float:
        """From 0 to below 1."""
        self.state = (self.state + GOLDEN) & MASK
        return splitmix64(self.state) / 2.0**64

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.number()

    def choose(self, items: Sequence[str]) -> str:
        return items[int(self.number() * len(items))]


def drawing(seed: int, index: int) -> Drawing:
    """Returns the picture with the given index in the infinite sequence of a seed.

    >>> seqloom.world.drawing(seed=0, index=0).caption
    'A big blue tree.'
    """
    draws = Draws(seed, index)
    form = draws.number()
    if form < 0.2:
        things = [thing(draws, (1, 1, SIDE - 1, SIDE - 1))]
        relation: tuple[str, ...] = ()
    else:
        relation = LEFT_OF if form < 0.6 else ABOVE
        things = two_things(draws, relation == LEFT_OF)
    ground = draws.between(200, 228)
    canvas = Canvas((ground, ground - draws.between(4, 14), ground - draws.between(14, 34)))
    for one in things:
        light = draws.between(0.88, 1.06)
        red, green, blue = COLOURS[one.colour]
        SHAPES[one.noun](canvas, one.box, (red * light, green * light, blue * light))
    noise = np.random.Generator(np.random.Philox(key=draws.state)).normal(0, 4, (SIDE, SIDE, 3))
    pixels = (canvas.pixels() + noise).clip(0, 255).astype(np.uint8)
    words: list[str] = []
    regions: list[int | None] = []
    for number, one in enumerate(things):
        if number:
            words += relation
            regions += [None] * len(relation)
        words += ["a", one.size, one.colour, one.noun]
        regions += [None, number, number, number]
    words[0] = "A"
    return Drawing(pixels, " ".join(words) + ".", tuple(words), tuple(regions), tuple(things))


def two_things(draws: Draws, side_by_side: bool) -> list[Thing]:
    """Draws two things that are clearly side by side, or clearly one above the other."""
    while True:
        middle = draws.between(SIDE / 2 - 2, SIDE / 2 + 2)
        if side_by_side:
            areas = [(1.0, 6.0, middle, SIDE - 6.0), (middle, 6.0, SIDE - 1.0, SIDE - 6.0)]
        else:
            areas = [(6.0, 1.0, SIDE - 6.0, middle), (6.0, middle, SIDE - 6.0, SIDE - 1.0)]
        first, second = (thing(draws, area) for area in areas)
        across = abs(second.box[0] + second.box[2] - first.box[0] - first.box[2]) / 2
        down = abs(second.box[1] + second.box[3] - first.box[1] - first.box[3]) / 2
        if (across - down if side_by_side else down - across) >= CLEAR:
            return [first, second]


def thing(draws: Draws, area: Box) -> Thing:
    """Draws what a thing is, and its place inside an area."""
    size = draws.choose(("small", "big"))
    colour = draws.choose(tuple(COLOURS))
    noun = draws.choose(tuple(SHAPES))
    left, top, right, bottom = area
    limit = min(right - left, bottom - top)
    side = min(draws.between(*(BIG if size == "big" else SMALL)), limit)
    x = draws.between(left, right - side)
    y = draws.between(top, bottom - side)
    return Thing(size, colour, noun, (x, y, x + side, y + side))
