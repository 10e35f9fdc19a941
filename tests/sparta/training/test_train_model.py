"""`train_model`: what it leaves, refuses and continues."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sparta.base.errors import IndexStateError, InputError, ModelError
from tests.programs import sparta
from tests.sparta.training.made_trainings import files, hand_made

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_what_training_leaves(train, tmp_path):
    from safetensors import safe_open

    from sparta.models.load import load_module

    result = train("out")
    assert result.folder == tmp_path / "out" / "best"
    assert 0 < result.validation <= 1
    assert result.step in (3, 6)
    with safe_open(str(result.folder / "model.safetensors"), framework="pt") as stored:
        assert stored.get_tensor("term_embeddings").dtype.itemsize == 1
        assert "term_embeddings.row_scale" in stored.keys()  # noqa: SIM118 (not a mapping)
    model = load_module(result.folder)
    assert model.config.quantizer is not None
    assert not model.config.tied
    assert model.encode_document("the moon", dtype="fp32").nnz > 0
    again = train("again")
    assert files(again.folder) == files(result.folder)
    assert files(train("other", seed=3).folder) != files(result.folder)
    assert files(train("out", resume=True).folder) == files(result.folder)


def test_tied_and_in_full_precision(train):
    from safetensors import safe_open

    from sparta.models.load import load_module

    result = train("out", tied=True, full_precision=True)
    with safe_open(str(result.folder / "model.safetensors"), framework="pt") as stored:
        assert "term_embeddings" not in stored.keys()  # noqa: SIM118 (not a mapping)
        assert all(stored.get_tensor(name).dtype.itemsize == 4 for name in stored.keys())  # noqa: SIM118
    model = load_module(result.folder)
    assert model.config.tied
    assert model.term_matrix() is model.encoder.get_input_embeddings().weight


def test_what_is_there_is_not_overwritten(train, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(IndexStateError, match="output folder already contains files"):
        train("out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_no_encoder(train, tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ModelError):
        train("out", encoder=str(tmp_path / "nothing"))


def test_texts_longer_than_the_encoder_are_refused(train):
    with pytest.raises(InputError, match="expected at most 512 wordpieces"):
        train("out", max_length=600)


def test_resuming_another_model_or_other_data_is_refused(train, pairs_file):
    train("out")
    for change in ({"context": False}, {"max_length": 64}, {"tied": True}):
        with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
            train("out", resume=True, **change)
    lines = pairs_file.read_text().splitlines()
    pairs_file.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
        train("out", resume=True)


def test_sets_are_drawn_by_their_weights(make_tiny_model, tmp_path, words):
    from sparta.training.options import TrainerConfig
    from sparta.training.paragraphs import Paragraph, ParagraphSet
    from sparta.training.sparta_training import SpartaTraining, TrainConfig

    sets = [
        ParagraphSet(
            name,
            tuple(Paragraph(w, "", ((0, len(w)),), ((f"{name} {w}", 0),)) for w in words[:20]),
            weight,
            size,
        )
        for name, weight, size in (("a", 3.0, 4), ("b", 1.0, 6))
    ]
    made = SpartaTraining(make_tiny_model(), sets, TrainConfig(trainer=TrainerConfig(10)), tmp_path)
    batches = [made.batch(step).questions for step in range(400)]
    names = Counter(questions[0][0] for questions in batches)
    assert 260 < names["a"] < 340
    for questions in batches:
        assert len(set(questions)) == len(questions) == (4 if questions[0][0] == "a" else 6)
        assert len({question[0] for question in questions}) == 1


@pytest.mark.slow
def test_the_layouts_of_a_model(train):
    """In a shared context by default, marked by segments as in the paper, or alone."""
    from sparta.models.load import load_module

    layouts = [
        load_module(train(name, **options).folder).config.layout
        for name, options in (("a", {}), ("b", {"segments": True}), ("c", {"context": False}))
    ]
    assert [(one.use_context, one.share_context, one.answer_segment) for one in layouts] == [
        (True, True, 0),
        (True, False, 1),
        (False, False, 0),
    ]


@pytest.mark.release
def test_two_processes_are_two_batches_a_step(train, pairs_file, encoder_folder, tmp_path):
    """Gradients of two processes are averaged as those of two accumulated batches are."""
    import subprocess
    import sys

    from safetensors.torch import load_file

    single = train("single", accumulate=2, validate_every=6, full_precision=True)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", "2"),
        *("-m", "cli._sparta", "train", "--encoder", encoder_folder, "--pairs", pairs_file, "--seed", "2"),
        *("--output", tmp_path / "both", "--steps", "6", "--learning-rate", "1e-3", "--validate-every", "6"),
        *("--batch-size", "8", "--device", "cpu", "--full-precision"),
    ]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("validation MRR") == 1, "one process speaks"
    card = (tmp_path / "both" / "best" / "README.md").read_text()
    assert f" train --encoder {encoder_folder} --pairs {pairs_file} --steps 6 " in card
    assert "base_model" not in card, "the encoder is a folder"
    two = load_file(tmp_path / "both" / "best" / "model.safetensors")
    for name, one in load_file(single.folder / "model.safetensors").items():
        np.testing.assert_allclose(two[name], one, atol=2e-4, err_msg=name)
    alone = load_file(train("alone", validate_every=6, full_precision=True).folder / "model.safetensors")
    assert max(float((two[n] - alone[n]).abs().max()) for n in two) > 1e-3


def test_a_trained_model_is_pressed_gently_at_first(training):
    """With a number of terms to follow, the penalty counts from the first step, but begins a hundredth."""
    import math

    for further, begins in ((False, 0.01), (True, 0.0001)):
        made = training(f"{further}", terms=100, pressure=0.01, trainer={"steps": 1, "validate_every": 1})
        made.trained_before = further
        made.run()
        assert made.memory["log_pressure"] == pytest.approx(math.log(begins), abs=0.021)


@pytest.mark.slow
def test_a_sparta_model_is_trained_further(train, tmp_path, monkeypatch):
    """It begins where the first training ended, scale and bias included."""
    import torch

    from sparta.models.resolve import DEFAULT_MODEL, default_model_folder, sparta_folder
    from sparta.models.sparta import SpartaModel
    from sparta.training.sparta_training import SpartaTraining

    first = train("first", full_precision=True)
    second = train("second", encoder=str(tmp_path / "first"), learning_rate=1e-12, full_precision=True)
    log = [json.loads(line) for line in (tmp_path / "second" / "log.jsonl").read_text().splitlines()]
    assert log[0]["step"] == 0, "what it began with is validated too"
    assert log[0]["validation"] == pytest.approx(first.validation, abs=1e-6)
    begun, ended = SpartaModel.load(first.folder), SpartaModel.load(second.folder)
    for name, tensor in begun.state_dict().items():
        torch.testing.assert_close(ended.state_dict()[name], tensor, msg=name)
    assert begun.scale != 1
    assert ended.config.quantizer
    for change, word in ((({"tied": True}), "tied False"), ({"max_length": 32}, "max_length 256 and not 32")):
        with pytest.raises(ModelError, match=word):
            train("third", encoder=str(tmp_path / "first"), **change)
    figures = iter([0.9, 0.8, 0.7])
    monkeypatch.setattr(SpartaTraining, "validate", lambda training: next(figures))
    worse = train("worse", encoder=str(tmp_path / "first"), full_precision=True)
    assert (worse.step, worse.validation) == (0, 0.9), "what it began with stays the best"
    assert sparta_folder(DEFAULT_MODEL) == default_model_folder()
    assert sparta_folder(tmp_path / "none") is None


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_occurrences_count_in_training_as_in_encoding(training, train, share):
    """Scores are those of an index, the gains learn, and a training adds them unless it is told not to."""
    from dataclasses import replace

    import torch

    from sparta.models.config import Lexical
    from sparta.models.load import load_module
    from sparta.models.sparta import SpartaModel

    made = training(data=hand_made(), held_out=0, dropout=0.0)
    made.model.add_lexical(Lexical(5.0), torch.rand(len(made.model.term_matrix())))
    made.model.config = replace(made.model.config, context_share=share)
    made.model.eval()
    batch = made.batch(0)
    with torch.no_grad():
        scores = made.score(made.encode_queries(batch.questions), batch.candidates)
    rows = made.model.encode_document(batch.candidates, dtype="fp32")
    expected = (made.model.encode_query(batch.questions) @ rows.T).toarray()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)
    assert made.score(made.encode_queries(["\u200b"]), batch.candidates).abs().sum() == 0, "nothing is asked"
    made.loss(0)[0].backward()
    assert made.model.gains.grad.abs().sum() > 0
    factors = {id(p): g.get("factor") for g in made.parameter_groups() for p in g["params"]}
    assert factors[id(made.model.gains)] == made.config.gain_rate
    assert factors[id(made.model.term_embeddings)] == made.config.term_rate

    result = train("with", learning_rate=1e-12, full_precision=True)
    model = SpartaModel.load(result.folder)
    assert model.config.lexical.mean_length > 1
    seen = model.tokenizer.encode(train.texts[0], add_special_tokens=False).ids
    gains = model.gains.detach().numpy()
    assert gains.max() == pytest.approx(0.2 * np.log1p((len(train.texts) + 0.5) / 0.5), rel=0.01)
    assert 0 < gains[seen].min() < gains.max()
    assert load_module(train("without", lexical=False).folder).lexical_gains() is None
    further = train("further", encoder=str(result.folder))
    assert load_module(further.folder).lexical_gains() is not None
    with pytest.raises(InputError, match="the start model has lexical gains"):
        train("none", encoder=str(result.folder), lexical=False)


@pytest.mark.slow
def test_a_new_model_gives_contexts_a_share_and_an_old_one_keeps_its_own(train):
    from sparta.base.errors import InputError
    from sparta.models.sparta import SpartaModel

    def share(name: str, **options: Any) -> float:
        result = train(name, full_precision=True, **options)
        return SpartaModel.load(result.folder).config.context_share

    assert share("new") == 0.4
    assert (
        share("alone", context=False)
        == share("marked", segments=True)
        == share("none", context_share=0.0)
        == 0
    )
    first = str(train("other", context_share=0.2, full_precision=True).folder)
    assert share("further", encoder=first) == 0.2
    assert share("changed", encoder=first, context_share=0.1) == 0.1
    for how in ({"context": False}, {"segments": True}):
        with pytest.raises(InputError, match="only with a shared context"):
            train("refused", context_share=0.3, **how)


def test_a_dev_file_validates(encoder_folder, pairs_file, write_jsonl, tmp_path):
    dev = write_jsonl(
        tmp_path / "dev.jsonl", [{"question": "moon", "positive": f"moon {i}"} for i in range(3)]
    )
    given = ["--encoder", encoder_folder, "--pairs", pairs_file, "--batch-size", 8, "--device", "cpu"]
    given += ["--dev", dev, "--output", tmp_path / "out", "--steps", 2, "--validate-every", 2]
    result = sparta("train", *given)
    assert result.exit_code == 0, result.output
    card = (tmp_path / "out" / "best" / "README.md").read_text()
    assert "on queries of dev.jsonl/pairs that no step was trained on" in card
    assert "| dev.jsonl/pairs (dev) | 1 | 3 | 3 |" in card
