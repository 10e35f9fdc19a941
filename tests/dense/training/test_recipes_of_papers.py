"""`--negatives` and `--recipe`: the batches and the loss of DPR and TASER, against plain torch."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModel

from dense.models.batches import first_windows
from dense.training.train import PAPER_RECIPES, Recipe
from sparta.training.paragraphs import Paragraph, ParagraphSet
from tests.dense.training.recipes import (
    USUAL,
    assert_same_gradients,
    questions_on,
    states_of_cls,
    trained,
)
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


@pytest.mark.parametrize("negatives", [0, 1, 2, 3])
def test_a_group_has_a_positive_and_its_negatives(negatives: int) -> None:
    paragraphs: list[Paragraph] = []
    for n in range(20):
        paragraphs.append(Paragraph(f"right {n}", questions=((f"question {n}", -1),)))
        paragraphs += [Paragraph(f"wrong {n} {i}") for i in range(4)]
    data = ParagraphSet("made", tuple(paragraphs), batch_size=4 * (1 + negatives), negatives=negatives)
    batch = data.draw(random.Random(3))
    rights = [p.text.split()[1] for p in batch if p.questions]
    wrongs = [p.text.split()[1] for p in batch if not p.questions]
    assert len(batch) == 4 * (1 + negatives)
    assert sorted(wrongs) == sorted(rights * negatives)


def test_dprs_loss_is_that_of_plain_torch(encoder: str, words: list[str], tmp_path: Path) -> None:
    """Eq. 2 of TASER: softmax over the positives and the hard negatives of all questions; with gradients."""
    data = questions_on(words, n=12, size=8)
    alternating = [part for p in data.paragraphs for part in (p, Paragraph(p.text[::-1].replace("  ", " ")))]
    paragraphs = tuple(
        p if i % 2 else Paragraph(p.text, questions=((p.questions[0][0], -1),))
        for i, p in enumerate(alternating)
    )
    whole = ParagraphSet("made", paragraphs, batch_size=8)
    settings = {**USUAL, **PAPER_RECIPES["dpr"], "dropout": 0.0, "held_out": 0}
    training = Recipe(encoder=encoder, **settings).training([whole], tmp_path)
    training.model.eval()
    batch = training.batch(0)
    assert (len(batch.questions), len(batch.candidates)) == (4, 8)
    model, berts = training.model, []
    for ours in (model.question_encoder, model.passage_encoder):
        berts.append(AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval())
        berts[-1].load_state_dict(ours.state_dict())
    inputs = [model.config.question_input(text, model.tokenizer) for text in batch.questions]
    texts = first_windows(batch.candidates, model.config.layout, model.tokenizer)
    gold = torch.tensor([[c.text for c in batch.candidates].index(_text(whole, q)) for q in batch.questions])
    products = states_of_cls(berts[0], inputs) @ states_of_cls(berts[1], texts).T
    expected = functional.cross_entropy(products, gold)
    expected.backward()
    loss = training.loss(0)[0]
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    for ours, bert in zip((model.question_encoder, model.passage_encoder), berts, strict=True):
        assert_same_gradients(ours, bert)


def _text(data: ParagraphSet, question: str) -> str:
    return next(p.text for p in data.paragraphs if p.questions and p.questions[0][0] == question)


def test_a_recipe_sets_the_papers_settings_and_typed_options_win(
    encoder: str, pairs: Path, tmp_path: Path
) -> None:
    words: list[Any] = ["--encoder", encoder, "--batch-size", 8, "--passages", pairs, "--device", "cpu"]
    out = ["--output", tmp_path / "out"]
    result = dense("train", *out, *words, "--recipe", "taser", "--dropout", 0)
    assert "experts in every 3th layer need at least 3 layers, found 2" in result.output
    settings = result.output.splitlines()[0].removeprefix("recipe taser: ").split(", ")
    assert {"routing det", "negatives 1", "questions 1", "pooling cls", "cosine False"} <= {*settings}
    assert {"separate title True", "learning rate 3e-05", "validate by average-rank"} <= {*settings}
    assert not [setting for setting in settings if setting.startswith("dropout")]  # it is typed
    facts = trained(tmp_path / "dpr", *words, "--recipe", "dpr", "--questions", 2)
    model = facts["model"]
    assert (model["shared"], model["routing"], model["pooling"], model["cosine"]) == (False, "", "cls", False)
    assert (facts["questions"], facts["dropout"], facts["validate_by"]) == (2, 0.1, "average-rank")
    facts = trained(tmp_path / "plain", *words)
    model = facts["model"]
    assert (model["shared"], model["pooling"], model["cosine"]) == (True, "mean", True)
    result = dense("train", *out, *words, "--recipe", "dpr", "--routing", "det")
    assert (result.exit_code, "--recipe cannot be combined with --routing" in result.output) == (2, True)
    n = sum(1 for line in pairs.read_text().splitlines() if json.loads(line))
    result = dense("train", *out, *words, "--recipe", "dpr", "--negatives", 2, "--steps", 1)
    assert "recipe dpr: pooling cls, cosine False" in result.output
    assert "negatives" not in result.output.splitlines()[0]
    assert f"--batch-size 256 --steps {n * 40 // 128}" in result.output
