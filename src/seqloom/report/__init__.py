"""Self-contained HTML pages: no network, no build step, light and dark colours."""

from seqloom.report.page import escape, figure, page, table

__all__ = ["escape", "figure", "page", "table"]
