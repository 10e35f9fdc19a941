"""Checkpoints of others are converted; the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cli._training import named_sets
from dense.models.bi_encoder import DenseModel
from sparta import Index, IndexOptions
from sparta.base.files import sha256_file
from sparta.training.paragraphs import ParagraphSet
from tests.dense.training.recipes import weights
from tests.programs import dense

pytestmark = pytest.mark.usefixtures("one_thread", "own_logger")


def dpr_file(path: Path, tiny_tokenizer: Any) -> Any:
    """A dict file of DPR's code; the question encoder in it."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=96,
    )
    torch.manual_seed(1)
    question, passage = (BertModel(config, add_pooling_layer=False).eval() for _ in range(2))
    stored = {f"question_model.{k}": v for k, v in question.state_dict().items()}
    stored |= {f"ctx_model.{k}": v for k, v in passage.state_dict().items()}
    path.parent.mkdir(exist_ok=True)
    torch.save({"model_dict": stored, "offset": 0, "epoch": 1, "encoder_params": {}}, path)
    return question


def test_a_dict_file_is_converted(encoder: str, tiny_tokenizer: Any, tmp_path: Path) -> None:
    question = dpr_file(tmp_path / "dpr" / "pytorch_model.bin", tiny_tokenizer)
    source = tmp_path / "dpr" / "pytorch_model.bin"
    refused = dense("convert", "--from", source, "--output", tmp_path / "no")
    assert refused.exit_code == 2
    assert "no tokenizer" in refused.output
    assert not (tmp_path / "no").exists()
    done = dense("convert", "--from", source, "--tokenizer", encoder, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "two encoders, 0.2M parameters" in done.output
    ids = torch.tensor([tiny_tokenizer.encode("the moon").ids])
    with torch.no_grad():
        expected = question(ids).last_hidden_state[0, 0]
    model = DenseModel.load(tmp_path / "out")
    np.testing.assert_allclose(model.encode_questions(["the moon"])[0], expected, atol=1e-5)
    again = dense("convert", "--from", source, "--tokenizer", encoder, "--output", tmp_path / "out")
    assert again.exit_code == 2
    assert "output folder already contains files" in again.output
    tiny_tokenizer.save(str(tmp_path / "dpr" / "tokenizer.json"))
    whole = dense("convert", "--from", tmp_path / "dpr", "--output", tmp_path / "folder")
    assert whole.exit_code == 0, whole.output
    assert weights(tmp_path / "folder") == weights(tmp_path / "out")
    small = dense("convert", "--from", tmp_path / "out", "--output", tmp_path / "small", "--int8")
    assert small.exit_code == 0, small.output
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("small", "out")]
    assert sizes[0] < 0.5 * sizes[1]


def test_dprs_folders_are_converted_in_any_order(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import DPRConfig, DPRContextEncoder, DPRQuestionEncoder

    config = DPRConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=96,
    )
    torch.manual_seed(4)
    question, passage = DPRQuestionEncoder(config).eval(), DPRContextEncoder(config).eval()
    question.save_pretrained(tmp_path / "q")
    passage.save_pretrained(tmp_path / "p")
    weights_of_p = passage.state_dict()
    (tmp_path / "p" / "model.safetensors").unlink()
    torch.save(weights_of_p, tmp_path / "p" / "pytorch_model.bin")
    for name in ("q", "p"):
        tiny_tokenizer.save(str(tmp_path / name / "tokenizer.json"))
    for number, order in enumerate((("q", "p"), ("p", "q"))):
        sources = [part for name in order for part in ("--from", tmp_path / name)]
        done = dense("convert", *sources, "--output", tmp_path / f"out{number}")
        assert done.exit_code == 0, done.output
    assert weights(tmp_path / "out0") == weights(tmp_path / "out1")
    ids = torch.tensor([tiny_tokenizer.encode("the moon").ids])
    with torch.no_grad():
        expected = question(ids).pooler_output[0]
    found = DenseModel.load(tmp_path / "out0").encode_questions(["the moon"])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["q"], "expected both encoders, found the question encoder only"),
        (["q", "q"], "expected a question encoder and a passage encoder, found question and question"),
        (["plain"], "no known checkpoint in this folder"),
        (["q", "q", "q"], "reads one or two checkpoints, found 3"),
        (["nothing"], "no such model folder"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, sources: list[str], message: str) -> None:
    for name, config in (("q", {"architectures": ["DPRQuestionEncoder"]}), ("plain", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    given = [part for name in sources for part in ("--from", tmp_path / name)]
    result = dense("convert", *given, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_two_stages_look_at_their_arguments_first(pairs: Path, encoder: str, tmp_path: Path) -> None:
    """A wrong one leaves nothing that the corrected command would stumble over."""
    usual = ["train", "--pairs", pairs, "--steps", 1, "--batch-size", 4, "--two-stages", "--device", "cpu"]
    output = tmp_path / "out"
    for wrong in (["--encoder", tmp_path / "none"], ["--encoder", encoder, "--mine-every", 1]):
        assert dense(*usual, *wrong, "--output", output).exit_code != 0
        assert not output.exists()
    done = dense(*usual, "--encoder", encoder, "--held-out", 0, "--output", output)
    assert done.exit_code == 0, done.output
    assert f"{output / 'best'}: validation none; the model of step 1" in done.output
    card = output / "best" / "README.md"
    assert "Validation: none; the model of step 1.\n" in card.read_text()
    card.write_text(card.read_text() + "Licence: MIT\n")
    again = [*usual, "--encoder", encoder, "--held-out", 0, "--output", output, "--resume"]
    assert dense(*again).exit_code == 0
    assert card.read_text().endswith("Licence: MIT\n"), "the same weights keep their card"


@pytest.mark.jvm
def test_an_index_of_pieces_gives_no_negatives(pairs: Path, encoder: str, tmp_path: Path) -> None:
    """A piece of a right passage would become a negative of its question."""
    options = IndexOptions(channels="bm25", unit="sentence")
    Index.create(tmp_path / "ix", [{"id": "a", "text": "One. Two."}], options=options).close()
    usual = ["train", "--pairs", pairs, "--batch-size", 4, "--encoder", encoder, "--output", tmp_path / "out"]
    refused = dense(*usual, "--two-stages", "--index", tmp_path / "ix")
    assert refused.exit_code == 2
    assert "expected an index of whole passages, found an index of sentences" in refused.output
    assert "--unit sentence" in refused.output
    assert not (tmp_path / "out").exists()


def test_dense_train_as_one_types_it(pairs: Path, encoder: str, tmp_path: Path) -> None:
    arguments = ["train", "--encoder", encoder, "--pairs", pairs, "--steps", 2, "--batch-size", 4]
    arguments += ["--routing", "seq", "--experts", 3, "--period", 2, "--pooling", "cls", "--dot"]
    arguments += ["--separate-title", "--layer-decay", 0.8, "--entropy", 0.1, "--questions", 1]
    arguments += ["--validate-by", "recall@2", "--held-out", 4, "--candidates", 5, "--device", "cpu"]
    done = dense(*arguments, "--output", tmp_path / "one")
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'one' / 'best'}: validation recall@2 " in done.output
    config = DenseModel.load(tmp_path / "one" / "best").config
    assert (config.routing, config.experts, config.pooling, config.cosine) == ("seq", 3, "cls", False)
    assert config.layout.separate_title
    card = (tmp_path / "one" / "best" / "README.md").read_text()
    told = shlex.split(next(line for line in card.splitlines() if line.startswith("    main train ")))
    assert sorted(told[1:]) == sorted(str(a) for a in arguments if a not in ("--device", "cpu"))
    [pairs_set] = sets_of(4, pairs=[str(pairs)])
    facts = [pairs_set.name, "1", str(len(pairs_set.paragraphs)), "40", f"`{pairs_set.fingerprint()}`"]
    assert f"| {' | '.join(facts)} |" in card
    assert done.output.rsplit("validation ", 1)[1].strip() in card
    assert sha256_file(tmp_path / "one" / "best" / "model.safetensors") in card
    done = dense(*arguments, "--output", tmp_path / "two", "--two-stages")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "two" / "stage-1" / "best" / "config.json").exists()
    assert DenseModel.load(tmp_path / "two" / "best").config == config


def sets_of(batch_size: int, **files: list[str]) -> list[ParagraphSet]:
    named = {"pairs": [], "articles": [], "passages": [], **files}
    data = SimpleNamespace(**named, dev=(), language="en")
    return named_sets(data, SimpleNamespace(batch_size=batch_size, train_length=192))


def test_files_of_one_name_are_two_sets(tmp_path: Path, write_jsonl: Callable[..., Path]) -> None:
    """What validates one of them must not be taken from the other."""
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        records = [{"question": f"where is {i}", "positive": f"{folder} {i}"} for i in range(4)]
        paths.append(write_jsonl(tmp_path / folder / "train.jsonl", records))
    sets = sets_of(2, pairs=[f"{paths[0]}=2", str(paths[1])])
    assert [(one.name, one.weight) for one in sets] == [
        (f"{paths[0]}/pairs", 2.0),
        (f"{paths[1]}/pairs", 1.0),
    ]
    assert [one.name for one in sets_of(2, pairs=[str(paths[0])], passages=[str(paths[1])])] == [
        "train.jsonl/pairs",
        "train.jsonl/passages",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--routing", "det", "--two-encoders"], "--routing cannot be combined with --two-encoders"),
        (["--pooling", "cls", "--codes", "2"], "--codes needs --pooling mean"),
        (["--routing", "det", "--experts", "3"], "--experts needs --routing seq or tok"),
        (["--experts", "3"], "--experts needs --routing"),
        (["--period", "2"], "--period needs --routing"),
        (["--routing", "det", "--entropy", "0.1"], "--entropy needs --routing seq or tok"),
        (["--separate-title"], "--separate-title needs --no-context or --pooling cls"),
        (["--validate-by", "mrr"], "measure must be rr, average-rank or recall@K"),
        (["--two-stages", "--mine-every", "2"], "two stages"),
    ],
)
def test_options_that_do_not_go_together(
    pairs: Path, encoder: str, tmp_path: Path, options: list[str], message: str
) -> None:
    usual = ["--encoder", encoder, "--pairs", pairs, "--output", tmp_path / "out", "--device", "cpu"]
    result = dense("train", *usual, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert dense("train", "--encoder", encoder, "--output", tmp_path / "out").exit_code == 2
