"""One in, one out; a list in, a list out; an iterator in, an iterator out, in bounded memory.

One item is a str, or what else the task takes as one record. A list, a tuple or a numpy array holds many. Everything else is refused:
a dict, a set or bytes can be iterated too, but not as texts in an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from seqloom.errors import UserError

MAX_BLOCK = 256  # records of an iterator that are computed together

Texts = list[str] | tuple[str, ...] | np.ndarray  # many texts
Item = TypeVar("Item")
Out = TypeVar("Out")


def is_text(item: object) -> bool:
    """Whether an item is one text."""
    return isinstance(item, str)


def apply(
    items: Any,
    work: Callable[[list[Any]], Sequence[Any]],
    *,
    is_one: Callable[[object], bool] = is_text,
    noun: str = "text",
    collect: Callable[[Sequence[Any]], Any] = list,
    after: Callable[[], None] | None = None,
) -> Any:
    """`work` of the items: one result for one item, a lazy iterator for an iterator, a list for a list, a tuple or an array.

    `work` takes several items and returns their results, in order, of which `collect` makes the list. `is_one` says what one item is, and
    `noun` what it is called; `after` is called when all results are there.
    """
    if is_one(items):
        result = work([items])[0]
    elif isinstance(items, Iterator):
        return in_blocks(items, work, after)
    else:
        result = collect(work(many(items, noun)))
    if after:
        after()
    return result


def many(items: Any, noun: str = "text") -> list[Any]:
    """The items of a list, a tuple or an array; raises for anything else."""
    if isinstance(items, np.ndarray) and items.ndim:
        return items.tolist()
    if isinstance(items, list | tuple):
        return list(items)
    given = "None" if items is None else f"a {type(items).__name__}"
    raise UserError(f"give a {noun}, or a list, an array or an iterator of {noun}s, not {given}")


def in_blocks(
    items: Iterable[Item],
    work: Callable[[list[Item]], Sequence[Out]],
    after: Callable[[], None] | None = None,
) -> Iterator[Out]:
    """The results of a stream, in order; `after` is called behind the last.

    The first block is one item, each next one twice as long: a reader at the other end of a pipe sees the first result soon, and
    memory does not grow with the stream.
    """
    source = iter(items)
    size = 1
    while block := list(islice(source, size)):
        yield from work(block)
        size = min(2 * size, MAX_BLOCK)
    if after:
        after()


def require_texts(texts: Sequence[object], name: str = "text") -> None:
    """Raises unless every item is a str."""
    for index, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(
                f"{name} {index} is a {type(text).__name__}, not a str; give one str, or a list or an iterator of them"
            )
