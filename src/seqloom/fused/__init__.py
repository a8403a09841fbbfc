"""The fast forms of parts: autograd functions and plans around the compiled kernels. Imports `kernels/` inside functions, never `nn/`.

`dispatch.py` says when a fast form may run. Each module here is the fast form of one part of `nn/`, which holds the equation and the
plain form; the promises compare the two.
"""
