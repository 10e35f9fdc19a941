"""Options are declared once, as fields; rules hold before a command runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli._arguments import (
    Excludes,
    Needs,
    arguments,
    command_line,
    flag,
    group,
    made,
    one_of,
    option,
    takes,
    typed,
    whole,
)
from sparta.base.errors import InputError


@arguments
class Inner:
    top_k: int = whole(3, "How many.")
    by_size: bool = flag("In proportion.")
    largest: int | None = option("The largest.", type=int)
    RULES = (Needs("--by-size", ("largest",)),)


@arguments
class Outer:
    paths: tuple[Path, ...] = option("Files.", "--dataset")
    inner: Inner = group(Inner)
    form: str = one_of(["text", "csv"], "The form.", "--format")
    RULES = (
        Excludes(("form",), ("paths",)),
        Needs("a --top-k above 1", ("form",), lambda outer: outer.inner.top_k > 1),
    )


@dataclass
class Settings:
    top_k: int
    form: str
    more: str = "usual"


def run(*words: str) -> Any:
    """Run a command with these words, and return its arguments, what was typed, and the command line."""
    results: list[Any] = []

    @click.command("do")
    @takes(Outer)
    def do(outer: Outer) -> None:
        results.extend([outer, typed("top_k", "form", "paths"), command_line("form")])

    ended = CliRunner().invoke(do, words)
    if ended.exception and not results:
        raise ended.exception
    return results


def test_fields_are_filled_with_groups_in_them() -> None:
    outer, options, line = run("--dataset", "a", "--dataset", "b", "--top-k", "5", "--by-size")
    assert outer.paths == (Path("a"), Path("b"))
    assert (outer.inner.top_k, outer.inner.by_size, outer.inner.largest, outer.form) == (
        5,
        True,
        None,
        "text",
    )
    assert options == ["--dataset", "--top-k"]
    assert line == "do --dataset a --dataset b --top-k 5 --by-size"
    with pytest.raises(FrozenInstanceError):
        outer.form = "csv"


def test_settings_of_the_library_are_made_of_the_same_names() -> None:
    outer, *_ = run("--format", "csv")
    assert made(Settings, outer) == Settings(3, "csv")
    assert made(Settings, outer, form="json", more="") == Settings(3, "json", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--largest", "2"], "--largest needs --by-size"),
        (["--format", "text", "--dataset", "a"], "--format cannot be combined with --dataset"),
        (["--format", "csv", "--top-k", "1"], "--format needs a --top-k above 1"),
    ],
)
def test_rules_hold_before_the_command_runs(words: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        run(*words)
    assert error.value.message == message


def test_a_default_breaks_no_rule() -> None:
    assert run("--top-k", "1")[0].form == "text"


def test_a_command_is_imported_when_it_runs() -> None:
    code = "import sys, cli._sparta\ntry: cli._sparta.main(['info', '--help'])\nfinally: print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name for name in ended.stdout.split() if name.startswith("cli.") and "_commands." in name}
    assert modules == {"cli.sparta_commands.info"}
