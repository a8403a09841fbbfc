"""Cases of the five promises: language models with other outputs."""

from __future__ import annotations

from functools import partial

from seqloom.models import LanguageModel
from seqloom.nn import RNN, AdaptiveSoftmax
from support.case import SIZE, WORDS, Case, named

few = partial(AdaptiveSoftmax, cutoffs=(2, 5), shrink=2.0)


def language(make: partial) -> Case:
    return Case(named(make), lambda: make(WORDS, SIZE), ids=True)


CASES: list[Case] = [
    language(partial(LanguageModel, stack=RNN, output=few)),
    language(partial(LanguageModel, stack=partial(RNN, dim=3), output=few)),
    language(partial(LanguageModel, stack=partial(RNN, dim=3), output=few, tied=False)),
]
