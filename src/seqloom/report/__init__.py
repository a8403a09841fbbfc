"""Self-contained pages: no network, no build step, light and dark."""

from seqloom.report.page import escape, figure, page, table

__all__ = ["escape", "figure", "page", "table"]
