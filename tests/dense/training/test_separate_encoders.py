"""Separate encoders: Maillard's base set-up of two BERTs, and a query encoder per class of tasks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AutoModel

from dense.encoding.question_encoder import BertQuestionEncoder
from dense.encoding.skills import Skills
from dense.models.bi_encoder import DenseModel
from dense.models.checkpoints import form_of
from dense.models.skill_checkpoints import single_expert_model
from dense.training.skill_train import train_skills
from sparta.base.errors import ModelError
from tests.dense.training.recipes import assert_same_gradients, states_of_cls
from tests.dense.training.skill_sets import of_tasks, recipe, sets_of, training

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


def test_loss_and_gradients_are_those_of_two_berts_in_plain_torch(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    """§2.1: the negative log likelihood of the positive among all passages of the batch, by dot products."""
    one = training(encoder, sets_of(words)[:1], tmp_path / "out", placement="encoder")
    assert one.model.config.skills is not None
    assert one.model.config.skills.experts == {"question": 0, "passage": 1}
    assert form_of(one.model.config) == "2 separate encoders with the skills single"
    for _, parameter in sorted(one.model.named_parameters()):
        if parameter.requires_grad:  # the two encoders start alike, so that a swap would not be seen
            parameter.data += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    batch = one.batches.draw(one.sets[0], random.Random(1))
    berts: list[Any] = []
    for number in (0, 1):
        bert = AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval()
        bert.load_state_dict(one.model.passage_encoder.experts[number].state_dict())
        berts.append(bert)
    scores = states_of_cls(berts[0], batch.queries) @ states_of_cls(berts[1], batch.candidates).T
    for row, masked in enumerate(batch.masked):
        for column in masked - {batch.gold[row]}:
            scores[row, column] = -torch.inf
    expected = functional.cross_entropy(scores, torch.tensor(batch.gold))
    expected.backward()
    one.model.eval()
    loss = one.batch_loss(batch)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    for number, bert in enumerate(berts):
        assert_same_gradients(one.model.passage_encoder.experts[number], bert)


def test_a_class_of_tasks_has_a_whole_encoder(encoder: str, words: list[str], tmp_path: Path) -> None:
    """Table 6: a batch teaches its class's query encoder and the shared passage encoder, nothing else."""
    one = training(encoder, of_tasks(words), tmp_path / "out", placement="encoder", query_experts=True)
    experts = {"question": 0, "passage": 1, "question of dialogue": 2, "question of fact checking": 3}
    assert one.skills.config.experts == experts
    size = sum(p.numel() for p in AutoModel.from_pretrained(encoder, add_pooling_layer=False).parameters())
    assert sum(p.numel() for p in one.model.passage_encoder.parameters()) == 4 * size
    batch = one.batches.draw(one.sets[0], random.Random(1))
    assert batch.task == "fact checking"
    one.batch_loss(batch).backward()
    taught = {
        name.split(".")[2]
        for name, p in one.model.named_parameters()
        if ".experts." in name and p.grad is not None and p.grad.abs().sum() > 0
    }
    assert taught == {"1", "3"}


@pytest.mark.slow
def test_a_trained_model_encodes_alike_with_and_without_torch(
    encoder: str, words: list[str], tmp_path: Path
) -> None:
    """The best model is read by torch, OpenVINO and NumPy; one of its encoders is a plain bi-encoder."""
    train_skills(of_tasks(words), recipe(encoder, placement="encoder", query_experts=True), tmp_path / "out")
    folder = tmp_path / "out" / "best"
    model, skills = DenseModel.load(folder), Skills.open(folder, device="cpu")
    texts = ["the moon", "a question about the king"]
    by_task = {task: model.encode_questions(texts, task) for task in ("", "dialogue", "fact checking")}
    assert not np.allclose(by_task["dialogue"], by_task["fact checking"], atol=1e-4)
    for task, vectors in by_task.items():
        np.testing.assert_allclose(skills.encode_questions(texts, task), vectors, atol=1e-3)
    with np.errstate(all="ignore"):
        first = BertQuestionEncoder(folder).encode_questions(texts[:1])
    np.testing.assert_allclose(first, by_task[""][:1], atol=1e-4)
    passages = [p for example in sets_of(words)[0].examples[:3] for p in example.positives]
    vectors = model.encode_passages(passages)[:, 0]
    np.testing.assert_allclose(skills.encode_passages(passages), vectors, atol=1e-3)
    plain = single_expert_model(model, "passage")
    np.testing.assert_allclose(plain.encode_passages(passages)[:, 0], vectors, atol=1e-6)
    assert not np.allclose(plain.encode_questions(texts), by_task[""], atol=1e-4)


def test_a_training_continues_with_each_encoder(encoder: str, words: list[str], tmp_path: Path) -> None:
    """A new class starts from the encoder of questions without a class; lost encoders are refused."""
    first = training(encoder, of_tasks(words), tmp_path / "a", placement="encoder", query_experts=True).model
    with torch.no_grad():
        for name, parameter in first.named_parameters():
            if ".experts." in name:
                parameter += int(name.split(".")[2])
    first.save_pretrained(tmp_path / "model")
    new = [replace(of_tasks(words)[0], name="trex.jsonl", task="slot filling")]
    again = training(str(tmp_path / "model"), new, tmp_path / "b", placement="encoder", query_experts=True)
    assert first.config.skills is not None
    general = first.config.skills.expert()
    before = first.passage_encoder.state_dict()
    for name, tensor in again.model.passage_encoder.state_dict().items():
        number = name.split(".")[1]
        start = name.replace(f"experts.{number}.", f"experts.{general}.") if number == "4" else name
        torch.testing.assert_close(tensor, before[start])
    both = training(encoder, sets_of(words)[:2], tmp_path / "c", placement="encoder").model
    both.save_pretrained(tmp_path / "both")
    with pytest.raises(ModelError, match="has experts for expanded, which the trained model lacks"):
        training(str(tmp_path / "both"), sets_of(words)[:1], tmp_path / "d", placement="encoder")
