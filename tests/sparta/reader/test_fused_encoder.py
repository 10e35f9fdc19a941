"""Fusion-in-Encoder against one long sequence with a mask that says who sees whom."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import InputError, ModelError
from sparta.neural.bert import Bert
from sparta.reader.config import ReaderConfig, ReaderLayout
from sparta.reader.fusion import FusedEncoder
from sparta.reader.reader import Reader
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader
from sparta.reader.stored_reader import StoredReader

CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 30,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@pytest.fixture
def bert():
    torch.manual_seed(5)
    model = Bert(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def test_who_sees_whom(bert):
    fused = FusedEncoder(bert, 3).eval()
    ids = torch.randint(0, 30, (2, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    with torch.no_grad():
        found = fused(ids, mask).last_hidden_state
        states = bert.embeddings(ids, torch.zeros_like(ids))
        line = torch.cat([states[0], states[1], fused.global_states])[None]
        sees = torch.zeros((17, 17), dtype=torch.bool)
        sees[:7, :7] = sees[7:14, 7:14] = True
        sees[:, 14:] = sees[14:, :] = True
        sees[:, 12:14] = False  # padding of the second passage
        for layer in bert.encoder.layer:
            line = layer(line, sees[None, None])
    assert torch.allclose(found[0], line[0, :7], atol=1e-5)
    assert torch.allclose(found[1, :5], line[0, 7:12], atol=1e-5)


def test_passages_tell_each_other(bert):
    fused = FusedEncoder(bert, 2).eval()
    ids = torch.randint(0, 30, (2, 6))
    other = ids.clone()
    other[1] = (ids[1] + 7) % 30
    mask = torch.ones_like(ids)
    with torch.no_grad():
        first, second = (fused(given, mask).last_hidden_state[0] for given in (ids, other))
        plain = [bert(given, mask).last_hidden_state[0] for given in (ids, other)]
    assert not torch.allclose(first, second, atol=1e-4)
    assert torch.equal(*plain)


def test_another_encoder_is_refused():
    with pytest.raises(ModelError, match="needs BERT or Electra, found Linear"):
        FusedEncoder(torch.nn.Linear(2, 2), 2)


def test_openvino_reads_as_torch_does(encoder_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(4)
    layout = ReaderLayout(max_length=48, overlap=16, longest_question=12, longest_answer=6)
    reader = SpanReader.from_encoder(encoder_folder, ReaderConfig(layout, global_tokens=3))
    for parameter in reader.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    reader.save_pretrained(tmp_path)
    ours, theirs = StoredReader(tmp_path, "fp32"), SpanReader.open(tmp_path, "cpu", "fp32")
    texts = [Text("the red house and the old school " * 9, "street"), Text("the sea in winter"), Text("old")]
    batches = [ours.windows(question, texts[:n]) for question, n in (("which house", 3), ("who", 1))]
    assert len(batches[0]) > 3
    for scores, right in zip(ours.each(batches), theirs.each(batches), strict=True):
        np.testing.assert_allclose(scores[..., : right.shape[2]], right, atol=5e-4)
        assert np.isneginf(scores[..., right.shape[2] :]).all()
    [alone] = ours.each([batches[0][:1]])
    [together] = ours.each([batches[0]])
    text = slice(batches[0][0].text_start, len(batches[0][0].ids) - 1)
    assert np.abs(alone[:, 0, text] - together[:, 0, text]).max() > 0.02, "passages see each other"
    assert isinstance(Reader.open(tmp_path, device="cpu").model, StoredReader)
    with pytest.raises(InputError, match="bf16 or fp32"):
        StoredReader(tmp_path, "int8")


@pytest.mark.parametrize("embedding_size", [16, 32])
def test_electra_reads_a_passage_and_global_tokens_as_one_line(embedding_size: int) -> None:
    """With one passage, everything attends to everything: transformers' encoder over all states."""
    from transformers import ElectraConfig, ElectraModel

    torch.manual_seed(5)
    config = ElectraConfig(
        vocab_size=50,
        embedding_size=embedding_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    electra = ElectraModel(config).eval()
    fused = FusedEncoder(electra, 3).eval()
    ids = torch.randint(1, 50, (1, 7))
    states = electra.embeddings(input_ids=ids)
    if embedding_size != 32:
        states = electra.embeddings_project(states)
    line = torch.cat([states, fused.global_states[None]], 1)
    expected = electra.encoder(line).last_hidden_state[:, :7]
    found = fused(ids, torch.ones_like(ids)).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    weights, factors = [*electra.encoder.parameters(), fused.global_states], torch.randn(found.shape)
    gradients = [torch.autograd.grad((out * factors).sum(), weights) for out in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_reader_with_electra_is_saved_and_opened(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformers import ElectraConfig, ElectraModel

    config = ElectraConfig(
        vocab_size=tiny_tokenizer.get_vocab_size(),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
    )
    ElectraModel(config).save_pretrained(tmp_path / "electra")
    tiny_tokenizer.save(str(tmp_path / "electra" / "tokenizer.json"))
    reader = SpanReader.from_encoder(tmp_path / "electra", ReaderConfig(global_tokens=2))
    reader.save_pretrained(tmp_path / "reader")
    texts = [[Text("the moon is a star"), Text("the river of the city")]]
    opened = Reader.open(tmp_path / "reader", device="cpu", dtype="fp32")
    assert opened.read_all(["what is the moon"], texts) == Reader(reader).read_all(
        ["what is the moon"], texts
    )
