"""Compiled CPU code and nothing else: numba loops over plain arrays and addresses. Imports no other package of seqloom.

Importing this package does not load numba; the modules inside do. `fused/` calls them, `vectors/` those of word vectors. What depends on
the insides of numba or libtorch is in `host.py`.
"""
