"""Numbers on the command line that have to be numbers: no NaN, no infinity."""

from __future__ import annotations

import math
from typing import Any

import click

HIGHEST_COUNT = 2**31 - 1
"""What Lucene can count passages with, and so the most that can be asked for."""
HIGHEST_SEED = 2**32 - 1
"""What NumPy takes as a seed."""


class Finite(click.FloatRange):
    """A number in a range; comparisons let NaN into every range, and infinity into those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"expected a finite number, found {value}.", param, ctx)
        return found

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class CountOption(click.Option):
    """An option whose help does not show the highest number that Lucene counts to."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what stands in brackets."""
        extra = super().get_help_extra(ctx)
        extra["range"] = extra.get("range", "").replace(f"1<=x<={HIGHEST_COUNT}", "x>=1")
        return extra
