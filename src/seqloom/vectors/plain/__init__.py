"""The loops of word vectors in plain numpy: the functions of the modules of these names in `kernels/`.

They compute the same equations with the same random numbers in the same order, so their results equal those
of the compiled forms up to rounding. They are tens to hundreds of times slower: they serve where numba cannot
be installed, and as the readable statement of what the compiled loops do. `vectors/backend.py` chooses
between the two.
"""
