"""Parts are tested in double precision."""

from support.precision import double

__all__ = ["double"]
