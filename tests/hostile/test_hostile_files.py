"""No hostile file takes much memory or time, is written through, or ends in a traceback."""

from __future__ import annotations

import pytest

from tests.hostile.cases import CASES
from tests.hostile.table import outcomes, row

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_every_hostile_file_is_refused() -> None:
    """Also by `sparta verify`, where the file belongs to an index."""
    found = list(outcomes(CASES))
    assert len({(outcome.case.kind, outcome.case.what) for outcome in found}) >= 60
    assert [row(outcome) for outcome in found if outcome.faults] == []
