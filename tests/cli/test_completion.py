"""Completion in a shell, as the documentation sets it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "docs" / "quickstart.md"
PROGRAMS = {"sparta": "search", "dense": "encode", "hybrid": "tune"}


@pytest.mark.parametrize(("program", "command"), PROGRAMS.items())
def test_bash_completes_commands_and_options(program: str, command: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    line = f'eval "$(_{program.upper()}_COMPLETE=bash_source {program})"'
    assert line in QUICKSTART.read_text(encoding="utf-8")
    script = tmp_path / program
    script.write_text(f"#!{sys.executable}\nfrom cli._{program} import main\nmain()\n")
    script.chmod(0o755)
    option = "--mod" if program == "dense" else "--ind"
    for words, place, wanted in (
        (f"{program} {command[:2]}", 1, command),
        (f"{program} {command} {option}", 2, option),
    ):
        ask = f"COMP_WORDS=({words}); COMP_CWORD={place}; _{program}_completion {program}"
        done = subprocess.run(
            [bash, "-c", f'{line}; {ask}; echo "${{COMPREPLY[*]}}"'],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert wanted in done.stdout, done.stderr
