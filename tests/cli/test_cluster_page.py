"""docs/cluster-encoding.md: every command of it is one, and those of machines without Ray do the work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from sparta.shards.store import read_shards
from tests.programs import dense, sparta

PAGE = (Path(__file__).parents[2] / "docs" / "cluster-encoding.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:sparta|dense) (?:encode|index) .*(?<!\))$", PAGE, re.MULTILINE)
PROGRAMS = {"sparta": sparta.main, "dense": dense.main}


@pytest.mark.parametrize("command", COMMANDS)
def test_its_options_exist(command: str) -> None:
    program, name, *words = shlex.split(command)
    chosen = PROGRAMS[program].get_command(click.Context(PROGRAMS[program]), name)
    chosen.make_parser(click.Context(chosen)).parse_args(words)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_its_scripts_run(
    variable: str, make_records: Any, write_jsonl: Any, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """For two parts of a small corpus, each begun again once it is done."""
    script = next(s for s in re.findall(r"i=\$.*?--quiet", PAGE, re.DOTALL) if variable in s)
    corpus = write_jsonl(tmp_path / "wiki.jsonl", make_records(9))
    script = script.replace("/32", "/2").replace("/data/", "").replace("wiki.jsonl", str(corpus))
    script = " ".join(script.split()) if variable.startswith("JOB") else script
    script = script.replace("sparta encode", f"{sys.executable} -m cli._sparta encode --shard-size 2")
    script += f" --model {tiny_model_folder}"
    for part in ("0", "1", "1"):
        environment = {variable: part, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, check=True)
    shards = read_shards([tmp_path / "shards-0", tmp_path / "shards-1"])
    assert [i for shard in shards for i in shard.passage_ids] == [f"p{i}" for i in range(9)]
