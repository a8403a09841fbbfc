"""One in, one out; a list in, a list out; an iterator in, an iterator out, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from seqloom.errors import UserError

MAX_BLOCK = 256  # records of an iterator that are computed together

Item = TypeVar("Item")
Out = TypeVar("Out")


def apply(
    items: Item | Iterable[Item], work: Callable[[list[Item]], Sequence[Out]]
) -> Out | list[Out] | Iterator[Out]:
    """`work` of the items: one result for a str or a tuple, a lazy iterator for an iterator, a list for any other collection.

    `work` takes several items and returns their results, in order.
    """
    if isinstance(items, str | tuple):
        return work([items])[0]  # type: ignore[list-item]  # a str is iterable, but one item
    if isinstance(items, Iterator):
        return in_blocks(items, work)
    if not isinstance(items, Iterable):
        raise UserError(
            f"a text is expected, or a list or an iterator of texts, not a {type(items).__name__}"
        )
    return list(work(list(items)))


def in_blocks(items: Iterable[Item], work: Callable[[list[Item]], Sequence[Out]]) -> Iterator[Out]:
    """The results of a stream, in order.

    The first block is one item, each next one twice as long: a reader at the other end of a pipe sees the first result soon, and
    memory does not grow with the stream.
    """
    source = iter(items)
    size = 1
    while block := list(islice(source, size)):
        yield from work(block)
        size = min(2 * size, MAX_BLOCK)


def require_texts(texts: Sequence[object], name: str = "text") -> None:
    """Raises unless every item is a str."""
    for index, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(
                f"{name} {index} is a {type(text).__name__}, not a str; give one str, or a list or an iterator of them"
            )
