"""Fair comparisons: several systems, one budget, several seeds; scores and costs side by side."""

from seqloom.studies.study import Study, prepare, run_all
from seqloom.studies.table import ResultRow, rows

__all__ = ["ResultRow", "Study", "prepare", "rows", "run_all"]
