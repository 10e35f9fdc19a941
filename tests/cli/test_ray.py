"""The cases of `ray_cases.py`, in a process of their own: the threads of Ray and of Java share none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")]
ROOT = Path(__file__).parents[2]


@pytest.mark.release
def test_the_cases_of_ray(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("ray_cases.py")
    options = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "own"))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(cases)],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), done.stdout + done.stderr
