"""Training commands refuse options that have no effect, before they read anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparta.base.errors import InputError
from sparta.training.options import SpartaRecipe
from tests.programs import dense, sparta

SPARTA = "train --encoder e --pairs p --output o"
DENSE = f"{SPARTA} --routing det"
SKILLS = "train-skills --encoder e --output o"
EXAMPLES = Path(__file__).parents[2] / "examples"
READER = "train-reader --data p --output o"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (f"{SPARTA} --tied --term-rate 5", "--term-rate"),
        (f"{SPARTA} --no-lexical --gain-rate 5", "--gain-rate"),
        (f"{SPARTA} --max-length 64 --train-length 128", "--train-length"),
        (f"{SPARTA} --steps 10 --mine-every 10", "--mine-every"),
        (f"{DENSE} --max-length 64 --train-length 128", "--train-length"),
        (f"{DENSE} --steps 10 --mine-every 10", "--mine-every"),
        (f"{DENSE} --held-out 0 --candidates 9", "--candidates"),
        (f"{DENSE} --held-out 0 --validate-by rr", "--validate-by"),
        (f"{SKILLS} --span s --negatives 2", "--negatives"),
        (f"{SKILLS} --link s --placement none --assignment naive", "--assignment"),
        (f"{READER} --negatives 0 --passages 3", "--passages"),
        (f"{READER} --negatives 0 --unanswered 0.1", "--unanswered"),
    ],
)
def test_an_option_without_effect_is_refused(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = dense if command.startswith((DENSE, SKILLS)) else sparta
    result = program(*command.split())
    assert result.exit_code == 2
    assert f"omit {option}" in result.output


@pytest.mark.parametrize(
    "option",
    ["--model m", "--bits 4", "--query-encoder none", "--top-k 9", "--min-weight 1", "--device cpu"],
)
def test_options_of_impacts_need_impacts(option: str) -> None:
    result = sparta("eval", EXAMPLES, "--channel", "bm25", *option.split())
    assert result.exit_code == 2
    assert f"omit {option.split()[0]}, or add --channel impact" in result.stderr


@pytest.mark.parametrize("changes", [{"tied": True, "term_rate": 2.0}, {"lexical": False, "gain_rate": 2.0}])
def test_a_rate_without_effect_is_refused(changes: dict[str, bool | float]) -> None:
    with pytest.raises(InputError, match="has no effect"):
        SpartaRecipe(encoder="e", **changes)  # type: ignore[arg-type]
