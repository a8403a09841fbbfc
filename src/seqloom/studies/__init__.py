"""Fair comparisons: several systems, one budget, several seeds; scores and costs side by side."""

from seqloom.studies.comparison import Comparison, compare
from seqloom.studies.study import Study
from seqloom.studies.table import ResultRow

__all__ = ["Comparison", "ResultRow", "Study", "compare"]
