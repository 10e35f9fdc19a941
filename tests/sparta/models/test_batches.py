"""Batches, precision and lack of memory change no score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Passage
from sparta.models.backends.torch import greatest
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.load import calibration_passages, load_model, load_module
from sparta.models.resolve import default_model_folder
from sparta.models.sparta import SpartaModel
from sparta.models.stored_model import StoredModel
from sparta.neural.batches import length_sorted_batches
from sparta.neural.encoding import pick_dtype, with_halving
from sparta.neural.inputs import InputLayout
from tests.sparta.models.brute_force import TEXTS, Make, dense, passages

pytestmark = pytest.mark.usefixtures("one_thread")


def test_scores_do_not_depend_on_the_batch_in_fp32(tiny_model: SpartaModel) -> None:
    alone = np.concatenate([dense(tiny_model, [text]) for text in TEXTS])
    for options in ({"batch_size": 2}, {"batch_size": 256}):
        np.testing.assert_allclose(dense(tiny_model, TEXTS, **options), alone, atol=1e-5)
    np.testing.assert_allclose(dense(tiny_model, TEXTS[::-1])[::-1], alone, atol=1e-5)


def check_bf16(model: SpartaModel, texts: Sequence[str | Passage]) -> None:
    """Two steps of 8 bits at most between a text alone and the same text in batches of all kinds."""
    assert model.config.quantizer is not None
    step = model.config.quantizer.step
    alone = np.concatenate([dense(model, [text], dtype="bf16") for text in texts])
    for batch_size in (3, 256):
        together = dense(model, texts, dtype="bf16", batch_size=batch_size)
        assert np.abs(alone - together).max() <= 2 * step
    for text, row in zip(texts, alone, strict=True):
        assert np.abs(dense(model, [text, "the moon " * 20], dtype="bf16")[0] - row).max() <= 2 * step


def test_scores_do_not_depend_on_the_batch_in_bf16(tiny_model: SpartaModel) -> None:
    check_bf16(tiny_model, TEXTS)


@pytest.mark.slow
@pytest.mark.skipif(not default_model_folder().is_dir(), reason="the default model is not here")
def test_scores_of_the_default_model_do_not_depend_on_the_batch() -> None:
    texts = calibration_passages()[::32]
    module = load_module()
    check_bf16(module, texts)
    assert module.config.quantizer is not None
    step = module.config.quantizer.step
    alone = np.concatenate([dense(module, [text]) for text in texts])
    np.testing.assert_allclose(dense(module, texts), alone, atol=0.001 * step)  # with AMX 0.9 of it
    model: Any = load_model(device="cpu")
    assert isinstance(model, StoredModel)
    for dtype, steps in (("auto", 2), ("fp32", 0.01)):
        alone = np.concatenate([dense(model, [text], dtype=dtype) for text in texts])
        assert np.abs(dense(model, texts, dtype=dtype) - alone).max() <= steps * step


def test_padding_in_16_bits_stays_within_the_longest_input(make_tiny_model: Make) -> None:
    model = make_tiny_model(SpartaConfig(layout=InputLayout(max_length=20, overlap=2)))
    backend = model.backend("bf16")
    assert [backend.padded_length(n) for n in (1, 16, 17, 20)] == [16, 16, 20, 20]
    assert [model.backend("fp32").padded_length(n) for n in (1, 17)] == [1, 17]


def test_the_greatest_by_the_bits() -> None:
    """Of any numbers that 16 bits can say, as the floats are; infinities and zeros are met."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    numbers = every[~every.isnan()]
    generator = torch.Generator().manual_seed(1)
    for pool in (numbers, numbers[numbers <= 0]):
        logits = pool[torch.randint(len(pool), (7, 3, 5000), generator=generator)]
        found = greatest(logits, by_bits=True)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, logits.amax(dim=1))
    inf = float("inf")
    columns = [
        [inf, -inf, 1.0],
        [-inf, -inf, -inf],
        [-0.0, 0.0, -1.0],
        [-0.0, -0.0, -2.0],
        [-inf, -3.0, -4.0],
    ]
    logits = torch.tensor(columns).bfloat16().T[None]
    assert greatest(logits, by_bits=True).tolist() == [[inf, -inf, 0.0, 0.0, -3.0]]


@pytest.mark.parametrize(("dtype", "by_bits"), [("bf16", True), ("fp32", False)])
def test_which_numbers_are_compared_by_their_bits(
    tiny_model: SpartaModel, dtype: str, by_bits: bool, calls: Any
) -> None:
    recorded = calls(greatest)
    DocumentEncoder(tiny_model, dtype=dtype).encode(passages(TEXTS[:1]))
    assert {call["by_bits"] for _, call in recorded} == {by_bits}


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_what_is_no_number_is_not_lost(tiny_model: SpartaModel, dtype: str, sign: float) -> None:
    def break_one(_module: Any, _inputs: Any, output: Any) -> None:
        output.last_hidden_state[0, 1] = torch.copysign(torch.tensor(float("nan")), torch.tensor(sign))

    with (
        tiny_model.encoder.register_forward_hook(break_one),
        pytest.raises(ModelError, match="the model gave infinite term weights"),
    ):
        DocumentEncoder(tiny_model, dtype=dtype).encode(passages(TEXTS[:1]))


def test_batches_stay_under_the_token_budget() -> None:
    lengths = [3, 50, 7, 7, 120, 9, 1, 40, 3, 3]
    batches = list(length_sorted_batches(lengths, 60, 4))
    assert sorted(i for batch in batches for i in batch) == list(range(10))
    for batch in batches:
        assert len(batch) <= 4
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)
    assert batches[0] == [4], "one text always fits"
    assert list(length_sorted_batches([], 60, 4)) == []


def test_the_encoder_sees_batches_under_its_budget(tiny_model: SpartaModel) -> None:
    seen: list[tuple[int, ...]] = []

    def watch(_module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        seen.append(tuple(named["input_ids"].shape))

    texts = [f"{text} {number}" for number in ("one", "two", "three") for text in TEXTS]
    with tiny_model.encoder.register_forward_pre_hook(watch, with_kwargs=True):
        DocumentEncoder(tiny_model, dtype="fp32", token_budget=50).encode(passages(texts))
    assert sum(n for n, _ in seen) == len(texts)
    assert all(n == 1 or n * length <= 50 for n, length in seen)


@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("no"), RuntimeError("CUDA out of memory"), MemoryError()]
)
def test_halving_gives_the_same(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []

    def double(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        if len(items) > 3:
            raise error
        return [2 * i for i in items]

    assert with_halving(double, list(range(13))) == [2 * i for i in range(13)]
    assert max(size for size in sizes if size <= 3) == 3
    assert "out of memory with 13 texts in a batch: trying 6" in caplog.text


def test_what_does_not_fit_alone_raises() -> None:
    def never(items: Sequence[int]) -> list[int]:
        raise torch.cuda.OutOfMemoryError("no")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        with_halving(never, [1, 2, 3])


def test_other_errors_are_not_retried() -> None:
    calls = []

    def broken(items: Sequence[int]) -> list[int]:
        calls.append(items)
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        with_halving(broken, [1, 2, 3])
    assert len(calls) == 1


def test_encoding_survives_a_lack_of_memory(tiny_model: SpartaModel) -> None:
    expected = dense(tiny_model, TEXTS)

    def small_only(_module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        if len(named["input_ids"]) > 2:
            raise torch.cuda.OutOfMemoryError("no memory for this batch")

    with tiny_model.encoder.register_forward_pre_hook(small_only, with_kwargs=True):
        np.testing.assert_allclose(dense(tiny_model, TEXTS), expected, atol=1e-5)


def test_pick_dtype() -> None:
    cpu = torch.device("cpu")
    assert pick_dtype("fp32", cpu) == torch.float32
    assert pick_dtype("bf16", cpu) == torch.bfloat16
    assert pick_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    assert pick_dtype("auto", torch.device("mps")) == torch.float32
    with pytest.raises(InputError, match="fp32, bf16, fp16 or auto, found 'float16'"):
        pick_dtype("float16", cpu)
