"""No hostile file takes much memory or time, is written through, or ends in a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def test_every_hostile_file_is_refused() -> None:
    """Also by `sparta verify`, where the file belongs to an index."""
    command = [sys.executable, "-m", "tests.hostile.table"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 60, done.stdout + done.stderr
    assert [row for row in rows if not row.endswith("| ok |")] == []
    assert done.returncode == 0
