"""Compiled CPU code and nothing else: numba loops over arrays and addresses. Imports no other package.

Importing this package does not load numba; importing its modules does (`word2vec_args` excepted). `fused/`
calls them for tensors, `vectors/` calls those of word vectors. `host.py` holds what depends on the internals
of numba or libtorch. Callers ask `available.py` first: if numba is missing or broken, they use their
plain form.
"""
