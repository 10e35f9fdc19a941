"""Checkpoints of others; training."""

from __future__ import annotations

import collections
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dense.models.bi_encoder import DenseConfig, DenseModel
from dense.models.checkpoints import dict_weights, load_dpr_dict, load_dpr_folders
from dense.training.train import DenseTraining, Recipe, train_dense
from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.neural.inputs import InputLayout
from sparta.training.options import TrainerConfig
from sparta.training.ranking import RankingConfig
from tests.dense.models.bi_encoders import LAYOUT, bert, by_hand, experts_of
from tests.dense.training.recipes import questions_on

pytestmark = pytest.mark.usefixtures("one_thread")


def test_dprs_dict_files(tiny_tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    vocabulary = tiny_tokenizer.get_vocab_size()
    question, passage = bert(2, 64, 1, 96, vocabulary).eval(), bert(2, 64, 1, 96, vocabulary).eval()
    weights = {f"question_model.{k}": v for k, v in question.state_dict().items()}
    weights |= {f"ctx_model.{k}": v for k, v in passage.state_dict().items()}
    weights["ctx_model.embeddings.position_ids"] = torch.arange(512)[None]
    weights["ctx_model.pooler.dense.weight"] = torch.zeros(64, 64)
    file = tmp_path / "dpr.cp"
    torch.save(
        {"model_dict": weights, "offset": 0, "epoch": 3, "encoder_params": {"do_lower_case": True}}, file
    )
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = load_dpr_dict(file, tmp_path)
    assert (model.config.pooling, model.config.cosine, model.config.shared) == ("cls", False, False)
    found = model.encode_questions(["the moon"])[0]
    np.testing.assert_allclose(found, by_hand(question, tiny_tokenizer, "the moon"), atol=1e-5)
    long = "the moon of the earth " * 20
    found = model.encode_questions([long])[0]
    np.testing.assert_allclose(
        found, by_hand(question, tiny_tokenizer, long), atol=1e-5, err_msg="all is read"
    )
    inputs = [model.config.layout.windows(Passage("", "the earth", "King"), model.tokenizer)[0]]
    with torch.no_grad():
        vectors = model.passages(inputs)[0, 0]
    np.testing.assert_allclose(vectors, by_hand(passage, tiny_tokenizer, "King [SEP] the earth"), atol=1e-5)
    for content in ({"model_dict": {}}, [1], {"model_dict": {"ctx_model.x": torch.zeros(1)}}):
        torch.save(content, file)
        with pytest.raises(ModelError):
            load_dpr_dict(file, tmp_path)
    file.write_bytes(b"nothing")
    with pytest.raises(ModelError, match="could not read them"):
        load_dpr_dict(file, tmp_path)


def test_tasers_dict_files(tiny_tokenizer: Any, tmp_path: Path) -> None:
    """The released layout: experts in layers 2 and 5, 0 for questions, 1 for passages; stored twice."""
    torch.manual_seed(2)
    config = DenseConfig(
        InputLayout(use_title=True, answer_segment=0, max_length=256, overlap=0, separate_title=True),
        routing="det",
        pooling="cls",
        cosine=False,
        question_length=256,
    )
    original = DenseModel(bert(6, 64, 1, 96, tiny_tokenizer.get_vocab_size()), tiny_tokenizer, config).eval()
    with torch.no_grad():
        for one in experts_of(original):
            for expert in one.experts:
                expert.output.dense.weight.normal_(std=0.3)
    weights = {}
    for name, tensor in original.passage_encoder.state_dict().items():
        name = re.sub(r"output\.experts\.(\d)\.intermediate\.", r"moe_layer.interm_layers.\1.", name)
        name = re.sub(r"output\.experts\.(\d)\.output\.", r"moe_layer.output_layers.\1.", name)
        for side in ("question_model", "ctx_model"):
            weights[f"{side}.encoder.{name}"] = tensor
    assert "ctx_model.encoder.encoder.layer.5.moe_layer.output_layers.1.LayerNorm.bias" in weights
    torch.save({"model_dict": weights}, tmp_path / "taser.bin")
    tiny_tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = load_dpr_dict(tmp_path / "taser.bin", tmp_path)
    assert model.config == config
    questions, passages = ["the moon"], [Passage("", "the earth", "King"), Passage("", "the moon")]
    np.testing.assert_array_equal(model.encode_questions(questions), original.encode_questions(questions))
    np.testing.assert_array_equal(model.encode_passages(passages), original.encode_passages(passages))
    different = model.encode_questions(questions)[0] - model.encode_passages(passages)[1, 0]
    assert np.abs(different).max() > 0.01, "the same text, another expert"
    model.save_pretrained(tmp_path / "ours")
    again = DenseModel.load(tmp_path / "ours")
    np.testing.assert_array_equal(again.encode_questions(questions), original.encode_questions(questions))


@pytest.mark.parametrize("heads", [1, 4])
def test_dprs_folders(heads: int, tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

    torch.manual_seed(4)
    config = DPRConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=96,
        hidden_act="relu",
    )
    question, passage = DPRQuestionEncoder(config).eval(), DPRContextEncoder(config).eval()
    for name, encoder in (("q", question), ("p", passage)):
        encoder.save_pretrained(tmp_path / name)
        tiny_tokenizer.save(str(tmp_path / name / "tokenizer.json"))
    model = load_dpr_folders(tmp_path / "q", tmp_path / "p")
    ids = torch.tensor([tiny_tokenizer.encode("the moon").ids])
    with torch.no_grad():
        expected = [question(ids).pooler_output[0], passage(ids).pooler_output[0]]
    np.testing.assert_allclose(model.encode_questions(["the moon"])[0], expected[0], atol=1e-5)
    inputs = [model.config.layout.windows(Passage("", "the moon"), model.tokenizer)[0]]
    with torch.no_grad():
        np.testing.assert_allclose(model.passages(inputs)[0, 0], expected[1], atol=1e-5)
    config.num_attention_heads = 2
    config.save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "p" / "model.safetensors", tmp_path / "other")
    with pytest.raises(ModelError, match=r"differ in config\.json: .*: 2"):
        load_dpr_folders(tmp_path / "q", tmp_path / "other", tmp_path / "q")
    with pytest.raises(ModelError, match="DPR question encoder"):
        load_dpr_folders(tmp_path / "p", tmp_path / "p")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_dpr_folders(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"routing": "det", "experts": 3},
        {"routing": "any"},
        {"routing": "seq", "experts": 1},
        {"routing": "det", "shared": False},
        {"pooling": "max"},
        {"pooling": "cls"},
        {"routing": "det", "period": 5},
    ],
)
def test_impossible_models(tiny_tokenizer: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        DenseModel(bert(4, 32, 2, 64, 364), tiny_tokenizer, DenseConfig(LAYOUT, **options))


def test_the_loss_is_the_cross_entropy_of_dot_products(
    make: Callable[..., DenseModel], tiny_vocabulary: list[str], tmp_path: Path
) -> None:
    model = make(codes=2, shared=False)
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]
    config = RankingConfig(trainer=TrainerConfig(10, bf16=False), held_out=0, mined=False)
    training = DenseTraining(model, [questions_on(words, n=60, size=8)], config, tmp_path)
    model.eval()
    batch = training.batch(0)
    loss, _ = training.loss(0)
    with torch.no_grad():
        texts = [batch.candidates[g] for g in batch.gold_sentence]
        inputs = [model.config.layout.windows(p, model.tokenizer)[0] for p in texts]
        questions = torch.from_numpy(model.encode_questions(batch.questions))
        scores = model.score(questions, torch.cat([model.passages([i]) for i in inputs]))
    expected = functional.cross_entropy(scores, torch.arange(len(texts)))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("codes", [0, 2])
def test_training_learns_resumes_and_repeats(
    make_tiny_model: Callable[..., Any],
    tiny_tokenizer: Any,
    tiny_vocabulary: list[str],
    tmp_path: Path,
    codes: int,
) -> None:
    folder = tmp_path / "encoder"
    make_tiny_model().encoder.save_pretrained(folder)
    tiny_tokenizer.save(str(folder / "tokenizer.json"))
    words = [t for t in tiny_vocabulary if t.isascii() and t.isalpha() and len(t) > 3]

    def run(name: str, steps: int = 60, resume: bool = False, **change: Any) -> Any:
        recipe = Recipe(
            encoder=str(folder),
            **{
                "steps": steps,
                "learning_rate": 3e-3,
                "validate_every": 20,
                "seed": 1,
                "codes": codes,
                "device": "cpu",
                **change,
            },
        )
        return train_dense([questions_on(words, n=60, size=8)], recipe, tmp_path / name, resume=resume)

    first, again = run("first"), run("again")
    assert first.validation == again.validation
    weights = [(r.folder / "model.safetensors").read_bytes() for r in (first, again)]
    assert weights[0] == weights[1]
    lines = [json.loads(line) for line in (tmp_path / "first" / "log.jsonl").read_text().splitlines()]
    losses = [line["ranking"] for line in lines if "ranking" in line]
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    model = DenseModel.load(first.folder)
    assert model.encode_passages([Passage("", "the moon")]).shape == (1, max(1, codes), 32)
    with pytest.raises(InputError, match="the settings differ from the settings of the started training"):
        run("first", steps=61, resume=True)


def test_a_few_questions_take_one_thread(make: Callable[..., DenseModel]) -> None:
    """And leave the number of threads as it was, in failure too."""
    model = make()
    seen: list[int] = []

    def see(*_: object) -> None:
        seen.append(torch.get_num_threads())
        if len(seen) == 3:
            raise RuntimeError("no")

    model.question_encoder.register_forward_pre_hook(see)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.encode_questions(["moon"])
        model.encode_questions(["moon"] * 5)
        with pytest.raises(RuntimeError, match="no"):
            model.encode_questions(["fail"])
        assert (seen, torch.get_num_threads()) == ([1, 2, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_a_checkpoint_with_settings_of_omegaconf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of its classes nothing is made: the package need not be there, and no other class may be named."""
    import sys
    import types

    class DictConfig:
        __module__, __qualname__ = "omegaconf.dictconfig", "DictConfig"

        def __init__(self, content: dict[str, Any]) -> None:
            self._content = content

    module = types.ModuleType("omegaconf.dictconfig")
    module.DictConfig = DictConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "omegaconf", types.ModuleType("omegaconf"))
    monkeypatch.setitem(sys.modules, "omegaconf.dictconfig", module)
    settings = DictConfig({"sequence_length": 256, "more": collections.defaultdict(dict, a={})})
    weights = {"question_model.x": torch.ones(2), "ctx_model.x": torch.zeros(2)}
    torch.save({"model_dict": weights, "encoder_params": {"encoder": settings}}, tmp_path / "dpr.cp")
    monkeypatch.undo()
    assert "omegaconf.dictconfig" not in sys.modules
    read = dict_weights(tmp_path / "dpr.cp")
    assert {name: t.tolist() for name, t in read.items()} == {n: t.tolist() for n, t in weights.items()}
    torch.save({"model_dict": weights, "other": tmp_path}, tmp_path / "path.cp")
    with pytest.raises(ModelError, match="could not read them"):
        dict_weights(tmp_path / "path.cp")
