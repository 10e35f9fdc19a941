"""What DPR and TASER were trained with can be set: each option does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dense.models.bi_encoder import DenseModel
from dense.training.train import Recipe, train_dense
from sparta.base.errors import InputError
from sparta.base.remedies import Option
from sparta.models.query_encoder import QueryTokenizer
from sparta.training.negatives import Bm25Vectorizer, mine
from sparta.training.paragraphs import Paragraph, ParagraphSet
from tests.dense.training.recipes import USUAL, questions_on, trained
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


def test_a_dev_set_validates_and_is_never_trained_on(encoder: str, words: list[str], tmp_path: Path) -> None:
    """Its own texts, also those without questions, are the candidates; nothing else is held out."""
    data = questions_on(words)
    held = questions_on(words[5:], "dev", 9, 1)
    dev = replace(held, paragraphs=(*held.paragraphs, Paragraph(" ".join(words[:4]))), dev=True)
    recipe = Recipe(encoder=encoder, **{**USUAL, "validate_by": "average-rank"})
    training = recipe.training([data, dev], tmp_path / "out")
    assert [len(one.paragraphs) for one in training.sets] == [40]
    drawn = {q for step in range(40) for q in training.batch(step).questions}
    assert not drawn & (
        {p.questions[0][0] for p in held.paragraphs} - {p.questions[0][0] for p in data.paragraphs}
    )
    training.run()
    model = DenseModel.load(tmp_path / "out" / "best")
    vectors = model.encode_passages([p.whole() for p in dev.paragraphs])[:, 0]
    scores = model.encode_questions([p.questions[0][0] for p in held.paragraphs]) @ vectors.T
    places = [int((row >= row[i]).sum()) for i, row in enumerate(scores)]
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    best = max(line["validation"] for line in lines if "validation" in line)
    assert -best == pytest.approx(np.mean(places), abs=1e-5)
    with pytest.raises(InputError) as caught:
        train_dense([data, replace(dev, weight=2.0)], recipe, tmp_path / "out", resume=True)
    assert caught.value.facts["differing"] == ["dev"]


def test_the_command_says_all_of_it(
    encoder: str, pairs: Path, tmp_path: Path, write_jsonl: Callable[..., Path]
) -> None:
    small = write_jsonl(
        tmp_path / "small.jsonl", [json.loads(s) for s in pairs.read_text().splitlines()[:10]]
    )
    dev = write_jsonl(tmp_path / "dev.jsonl", [{"question": "q", "positive": "the moon"}])
    given = ["--encoder", encoder, "--batch-size", 8, "--device", "cpu"]
    given += ["--pairs", pairs, "--passages", f"{small}=2"]
    facts = trained(tmp_path / "usual", *given)
    assert [weight for _, _, weight, _ in facts["sets"]] == [1, 2]
    assert (facts["dropout"], facts["gather"], facts["model"]["question_length"]) == (0, False, 64)
    options = ["--dropout", 0.1, "--gather", "--question-length", 100, "--by-size", "--dev", dev]
    facts = trained(tmp_path / "chosen", *given, *options)
    assert [weight for _, _, weight, _ in facts["sets"]] == [40, 20]
    assert [(name, weight) for name, _, weight in facts["dev"]] == [("dev.jsonl/pairs", 1)]
    assert (facts["dropout"], facts["gather"], facts["model"]["question_length"]) == (0.1, True, 100)
    facts = trained(tmp_path / "limited", *given, *options, "--largest", 30)
    assert [weight for _, _, weight, _ in facts["sets"]] == [30, 20]
    for wrong, message in (
        (["--dev", dev, "--held-out", 3], "--dev cannot be combined with --held-out"),
        (["--p2-alone"], "--p2-alone needs --two-stages"),
        (["--largest", 5], "--largest needs --by-size"),
        (["--dev", tmp_path / "none.jsonl"], "none.jsonl"),
    ):
        result = dense("train", "--output", tmp_path / "out", *given, *wrong)
        assert (result.exit_code, message in result.output) == (2, True), result.output
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--markers"], "--markers needs --single"),
        (["--query-experts"], "--query-experts needs --single"),
        (["--spans", 5], "--spans needs --span"),
        (["--period", 3, "--placement", "none"], "--period needs --placement attention or feed-forward"),
        (
            ["--period", 3, "--placement", "encoder"],
            "--period needs --placement attention or feed-forward",
        ),
        (["--held-out", 5, "--dev", "d", "--index", "i"], "--held-out cannot be combined with --dev"),
    ],
)
def test_options_of_skills_without_effect_are_refused(more: list[Any], said: str, tmp_path: Path) -> None:
    given = ["--encoder", "none", "--output", tmp_path / "out", "--rerank", tmp_path / "none.json"]
    result = dense("train-skills", *given, *more)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_dropout_changes_what_a_step_reads(encoder: str, words: list[str], tmp_path: Path) -> None:
    def losses(dropout: float) -> set[float]:
        training = Recipe(encoder=encoder, **USUAL, dropout=dropout).training([questions_on(words)], tmp_path)
        training.model.train()
        return {training.loss(0)[0].item() for _ in range(3)}

    assert len(losses(0.0)) == 1
    assert len(losses(0.1)) == 3


def test_questions_are_read_to_their_length(encoder: str, words: list[str], tmp_path: Path) -> None:
    """The model keeps the length, so search reads as much as training; also one that is trained further."""
    long, end = " ".join(words[:4] * 25), words[4]
    for length, differ in ((64, False), (104, True)):
        recipe = Recipe(encoder=encoder, **USUAL, question_length=length)
        recipe.model().save_pretrained(tmp_path / str(length))
        model = DenseModel.load(tmp_path / str(length))
        one, other = model.encode_questions([f"{long} {end}", f"{long} {words[5]}"])
        assert bool((one != other).any()) == differ
        again = Recipe(encoder=str(tmp_path / str(length)), **USUAL)
        assert again.model().config.question_length == length
        assert replace(again, question_length=20).model().config.question_length == 20
    with pytest.raises(InputError) as caught:
        replace(recipe, question_length=10_000).model()
    assert caught.value.remedy.options == [Option("question_length", 512)]


@pytest.mark.slow
def test_mining_with_bm25_takes_bounded_memory(tiny_tokenizer: Any, words: list[str]) -> None:
    """Below 4 MB for 1,000 texts of 120 different wordpieces, and no more for the scores of any number."""
    rng = np.random.default_rng(0)
    vocabulary = sorted(tiny_tokenizer.get_vocab())
    texts = [" ".join(rng.choice(vocabulary, 150)) for _ in range(300)]
    tokenizer = QueryTokenizer(tiny_tokenizer)
    tracemalloc.start()
    Bm25Vectorizer(texts, tokenizer).weigh(texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 4e6
    asked: list[int] = []

    def score(questions: Any) -> Any:
        asked.append(len(questions))
        return np.zeros((len(questions), 20_000), np.float32)

    mine(
        ParagraphSet(
            "s", tuple(Paragraph(f"t{i}", "", (), ((f"q{i}", -1),) if i < 900 else ()) for i in range(20_000))
        ),
        score,
    )
    assert sum(asked) == 900
    assert max(asked) * 20_000 * 4 < 2e7


SCRIPT = """
import atexit, json, os, sys
from pathlib import Path
import torch
import dense.training.train as module
from sparta.training.paragraphs import open_set

module.pick_dtype = lambda *_: torch.float32
pairs, output, size, recipe = sys.argv[1:]
sets = [open_set(pairs, "pairs", int(size))]
module.train_dense(sets, module.Recipe(**json.loads(recipe)), Path(output))
atexit._run_exitfuncs()
threads = [Path(f"/proc/self/task/{thread}/comm").read_text() for thread in os.listdir("/proc/self/task")]
assert not any("gloo" in name for name in threads), threads
"""


@pytest.mark.release
def test_gathered_batches_are_one_large_batch(encoder: str, pairs: Path, tmp_path: Path) -> None:
    """Two processes that gather train the model that one trains with batches twice as large."""
    (tmp_path / "script.py").write_text(SCRIPT)
    recipe = {**USUAL, "encoder": encoder, "steps": 4, "learning_rate": 1e-3, "validate_every": 4}
    recipe |= {"codes": 2, "mine_every": 2}
    several = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    several += ["--nproc-per-node", "2"]
    trained = {}
    for name, processes, size, gather in (
        ("one", [], 12, False),
        ("gathered", several, 6, True),
        ("apart", several, 6, False),
    ):
        given = [
            tmp_path / "script.py",
            pairs,
            tmp_path / name,
            size,
            json.dumps({**recipe, "gather": gather}),
        ]
        command = [sys.executable, *processes, *map(str, given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        trained[name] = DenseModel.load(tmp_path / name / "best").state_dict()
    gathered, apart = (
        float(torch.cat([(trained[name][n] - t).abs().flatten() for n, t in trained["one"].items()]).mean())
        for name in ("gathered", "apart")
    )
    # single weights may differ: Adam's first steps make much of gradients that are nearly 0
    assert gathered < apart / 20
