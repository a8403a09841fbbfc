"""Numbers, sizes and times with their units, as options take them."""

from __future__ import annotations

import pytest

from seqloom.cli import options
from seqloom.errors import UserError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (options.parse_count, "800k", 800_000),
        (options.parse_count, "1_000", 1_000),
        (options.parse_number, "2.5B", 2.5e9),
        (options.parse_size, "24GB", 24 * 10**9),
        (options.parse_seconds, "30d", 30 * 86_400),
        (options.parse_minutes, "90s", 1.5),
        (options.parse_minutes, "2h", 120),
    ],
)
def test_a_value_with_its_unit(parse, text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("parse", [options.parse_count, options.parse_size, options.parse_minutes])
@pytest.mark.parametrize("text", ["1e400", "1e309", "12 parsecs", "nan", "inf", ""])
def test_what_is_no_number_is_one_clear_error(parse, text: str) -> None:
    with pytest.raises(UserError, match=r"too large|is not a number"):
        parse(text)
