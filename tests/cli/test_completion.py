"""Completion in a shell, as the documentation sets it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.programs import PROGRAMS as CALLABLE
from tests.programs import sparta

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


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or all commands of a group, with their names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        subcommand = command.get_command(context, word)
        assert subcommand is not None
        yield from commands(subcommand, f"{name} {word}")


@pytest.mark.parametrize("program", CALLABLE)
def test_what_names_a_file_or_folder_completes_one(program: str) -> None:
    missing = [
        f"{name} {parameter.opts[0]} {parameter.metavar}"
        for name, command in commands(CALLABLE[program].main, program)
        for parameter in command.params
        if any(word in (parameter.metavar or "") for word in ("FILE", "PATH", "FOLDER", "DIR"))
        and {item.type for item in parameter.shell_complete(click.Context(command), "w4")}.isdisjoint(
            ("file", "dir")
        )
    ]
    assert not missing


@pytest.mark.parametrize(
    "words", ["index --corpus w4", "sync w4", "search x --queries w4", "delete --ids w4"]
)
def test_the_shell_is_told_to_complete_files(words: str) -> None:
    line = f"sparta {words}"
    result = CliRunner().invoke(
        sparta.main,
        prog_name="sparta",
        env={
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
            "_SPARTA_COMPLETE": "bash_complete",
        },
    )
    assert result.output == "file,w4\n"
