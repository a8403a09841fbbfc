"""Self-contained HTML pages: no network, no build step, light and dark colours."""

from seqloom.report.notebook import curve, frame
from seqloom.report.page import escape, figure, page, table

__all__ = ["curve", "escape", "figure", "frame", "page", "table"]
