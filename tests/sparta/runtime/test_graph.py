"""Graphs compute what torch computes, in floats exactly, in 8 bits nearly, and the same in every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DistilBertConfig, DistilBertModel

from sparta.neural.bert import Bert
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs
from sparta.runtime import graph as graph_module
from sparta.runtime.calibration import measured
from sparta.runtime.graph import AFTER_ATTENTION, AFTER_GELU, Graph
from sparta.runtime.network import Network, arrays, in_threads
from sparta.runtime.weights import Encoder, StoredWeights, is_supported, read_encoder

WIDTH, VOCABULARY = 64, 120
BERT: dict[str, Any] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 60,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
}


def texts(seed: int = 0) -> list[EncoderInput]:
    rng = np.random.default_rng(seed)
    lengths = [3, 17, 40, 9, 40, 26]
    return [
        EncoderInput(ids := rng.integers(0, VOCABULARY, n).tolist(), [i % 2 for i in ids], 1, n - 1)
        for n in lengths
    ]


def bert(seed: int = 0, config: dict[str, Any] = BERT) -> tuple[Bert, Encoder]:
    torch.manual_seed(seed)
    model = Bert(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = {f"encoder.{name}": tensor.numpy() for name, tensor in model.state_dict().items()}
    return model, read_encoder(StoredWeights(weights), "encoder.", config)


def states(encoder: Encoder, inputs: list[EncoderInput], ranges: Any = None, **options: Any) -> list[Any]:
    graph = Graph(ranges)
    network = Network(graph.model([graph.encoder(encoder, with_segments=True)]), "fp32")
    [outputs] = network(*graph.arguments(**arrays(inputs, **options)))
    return [row[: len(item.ids)].copy() for row, item in zip(outputs, inputs, strict=True)]


def by_torch(model: torch.nn.Module, inputs: list[EncoderInput], *, segments: bool) -> list[Any]:
    ids, mask, types = pad_inputs(inputs)
    more = {"token_type_ids": types} if segments else {}
    with torch.inference_mode():
        outputs = model(input_ids=ids, attention_mask=mask, **more).last_hidden_state.numpy()
    return [row[: len(item.ids)] for row, item in zip(outputs, inputs, strict=True)]


def test_bert_in_floats_equals_torch() -> None:
    model, encoder = bert()
    inputs = texts()
    for ours, theirs in zip(
        states(encoder, inputs, length=48), by_torch(model, inputs, segments=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_distilbert_in_floats_equals_transformers() -> None:
    config = DistilBertConfig(
        vocab_size=VOCABULARY, dim=WIDTH, hidden_dim=96, n_layers=2, n_heads=4, max_position_embeddings=60
    )
    torch.manual_seed(1)
    model = DistilBertModel(config).eval()
    assert is_supported(config.to_dict())
    stored = StoredWeights({name: tensor.numpy() for name, tensor in model.state_dict().items()})
    encoder = read_encoder(stored, "", config.to_dict())
    graph = Graph()
    network = Network(graph.model([graph.encoder(encoder, with_segments=True)]), "fp32")
    inputs = texts()
    [outputs] = network(*graph.arguments(**arrays(inputs)))
    for row, item, theirs in zip(outputs, inputs, by_torch(model, inputs, segments=False), strict=True):
        np.testing.assert_allclose(row[: len(item.ids)], theirs, atol=2e-5)


@pytest.mark.parametrize("in_8_bits", [False, True])
def test_states_of_cls_alone_equal_those_beside_all_others(*, in_8_bits: bool) -> None:
    _, encoder = bert()
    ranges = (
        measured(lambda graph: graph.encoder(encoder, with_segments=True), texts(1)) if in_8_bits else None
    )
    graph = Graph(ranges)
    only_first = graph.encoder(encoder, with_segments=True, only_first=True)
    [outputs] = Network(graph.model([only_first]), "fp32")(*graph.arguments(**arrays(texts())))
    assert outputs.shape == (len(texts()), 1, WIDTH)
    expected = [text_states[:1] for text_states in states(encoder, texts(), ranges)]
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("in_floats", [(), (AFTER_GELU,), (AFTER_GELU, AFTER_ATTENTION)])
def test_eight_bits_are_near_and_do_not_depend_on_the_batch(in_floats: tuple[str, ...]) -> None:
    model, encoder = bert()
    ranges = measured(lambda graph: graph.encoder(encoder, with_segments=True), texts(1))
    ranges = {name: values for name, values in ranges.items() if not name.endswith(in_floats)}
    inputs = texts()
    exact, together = by_torch(model, inputs, segments=True), states(encoder, inputs, ranges, length=60)
    for item, ours, theirs in zip(inputs, together, exact, strict=True):
        error = np.abs(ours - theirs).mean() / np.abs(theirs).mean()
        assert 0 < error < 0.15
        [alone] = states(encoder, [item], ranges)
        # a sum that rounds to the neighboring level moves a state by one level, and no more
        assert np.abs(ours - alone).mean() < 0.01 * np.abs(alone).mean()


def test_large_channels_stay_in_floats_after_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few channels of GELU's outputs are far larger than the others, which would need coarse levels."""
    config = {**BERT, "num_hidden_layers": 1}
    model, _ = bert(config=config)
    marks = 2, 3
    direction = torch.nn.functional.normalize(torch.randn(WIDTH), dim=0)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[list(marks)] += 20 * direction
        [layer] = model.encoder.layer
        layer.attention.output.dense.weight *= 0.1
        for norm in (model.embeddings.LayerNorm, layer.attention.output.LayerNorm):
            norm.weight.fill_(1)
        layer.intermediate.dense.weight *= 0.3
        layer.intermediate.dense.weight[:5] = 3 * direction
    weights = {f"encoder.{name}": tensor.numpy() for name, tensor in model.state_dict().items()}
    encoder = read_encoder(StoredWeights(weights), "encoder.", config)
    inputs = [EncoderInput([marks[0], *item.ids, marks[1]], [0, *item.segments, 0], 1, 2) for item in texts()]
    name = "layer.0" + AFTER_GELU
    largest = measured(lambda graph: graph.encoder(encoder, with_segments=True), inputs)[name]
    assert np.sort(largest)[-6:].max() > 2 * np.sort(largest)[-6:].min()
    exact = by_torch(model, inputs, segments=True)

    def error() -> float:
        pairs = zip(states(encoder, inputs, {name: largest}), exact, strict=True)
        return float(np.mean([np.abs(ours - theirs).mean() for ours, theirs in pairs]))

    with_large = error()
    monkeypatch.setattr(graph_module, "LARGE_CHANNELS", 1)  # of five
    assert 0 < with_large < 0.5 * error()


def test_threads_run_one_network_at_once() -> None:
    _, encoder = bert()
    graph = Graph()
    network = Network(graph.model([graph.encoder(encoder, with_segments=True)]), "fp32", streams=2)
    batches = [arrays(texts(seed)) for seed in range(12)]
    outputs = list(in_threads(lambda b: network(*graph.arguments(**b))[0].copy(), batches, network.streams))
    for batch, output in zip(batches, outputs, strict=True):
        np.testing.assert_allclose(output, network(*graph.arguments(**batch))[0], atol=1e-5)


def test_a_closed_generator_leaves_the_rest() -> None:
    done: list[int] = []
    running = in_threads(lambda n: (done.append(n), n)[1], list(range(500)), 2)
    assert next(running) == 0
    running.close()
    assert len(done) < 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("encoder.layer.1.output.dense.bias"), "found none"),
        (lambda w: w.update({"embeddings.LayerNorm.bias": np.zeros(3, np.float32)}), r"found \(3,\) float32"),
        (lambda w: w.update({"embeddings.LayerNorm.bias": np.zeros(WIDTH)}), "float64"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    weights = {name: tensor.numpy() for name, tensor in Bert(BERT).state_dict().items()}
    change(weights)
    with pytest.raises(ValueError, match=message):
        read_encoder(StoredWeights(weights), "", BERT)


def test_other_encoders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found roberta"):
        read_encoder(StoredWeights({}), "", {**BERT, "model_type": "roberta"})
