"""Fast forms of parts: autograd functions and plans around the compiled kernels. Imports `kernels/` inside
functions, never `nn/`.

Each module is the fast form of one part of `nn/`, which holds the equation and the plain form; tests compare
the two. A part calls its fast form in one place, and the call returns None where dtype, device or options do
not fit. `dispatch.py` holds the checks they share.
"""
