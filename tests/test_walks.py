"""One passage, one query and one question on their way through the code (scripts/walk.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "walk.py"
pytestmark = pytest.mark.jvm


def walked(command: str) -> tuple[int, int, str]:
    """Stops, returns, and all that the script prints."""
    done = subprocess.run([sys.executable, str(SCRIPT), command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [found] = re.findall(r": (\d+) stops, (\d+) returns", done.stdout)
    return int(found[0]), int(found[1]), done.stdout


@pytest.mark.slow
def test_a_passage_is_read_once_and_goes_straight_to_the_index() -> None:
    stops, returns, printed = walked("index")
    assert stops <= 25
    assert returns <= 8
    assert "opened 1 times: corpus.jsonl" in printed


@pytest.mark.slow
def test_a_search_ranks_once() -> None:
    _, _, printed = walked("search")
    assert "rankings asked of Java: 1; Lucene readers opened: 1" in printed
    # Once to search, and once while Java starts, to open a network that queries may need.
    assert "opened 2 times: ix/manifest.json" in printed


@pytest.mark.slow
def test_an_evaluation_opens_each_manifest_and_lucene_once() -> None:
    _, _, printed = walked("eval")
    assert "Lucene readers opened: 1" in printed
    opened = dict(re.findall(r"opened (\d+) times: (\S*manifest\.json)", printed))
    assert set(opened) == {"1"}, printed
