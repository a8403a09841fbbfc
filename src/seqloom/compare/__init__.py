"""The fair comparison: several systems, one budget, several seeds, score and cost side by side."""

from seqloom.compare.study import Study, prepare, run_all
from seqloom.compare.table import Row, rows

__all__ = ["Row", "Study", "prepare", "rows", "run_all"]
