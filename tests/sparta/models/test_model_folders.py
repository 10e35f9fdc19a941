"""Models are saved, loaded and refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sparta.base.errors import ModelError
from sparta.base.remedies import Option
from sparta.models.config import SpartaConfig
from sparta.models.load import load_model
from sparta.models.quantize import Quantizer
from sparta.models.sparta import SpartaModel
from sparta.neural.checkpoint import load_state, quantize_rows, save_state
from sparta.neural.inputs import InputLayout
from tests.sparta.models.brute_force import TEXTS, Make, broken_copy, dense

pytestmark = pytest.mark.usefixtures("one_thread")


def same_state(left: SpartaModel, right: SpartaModel) -> bool:
    a, b = left.state_dict(), right.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_is_the_same(make_tiny_model: Make, tmp_path: Path, tied: bool) -> None:
    config = SpartaConfig(
        layout=InputLayout(use_title=True, max_length=100, overlap=7),
        tied=tied,
        pool_special=True,
        quantizer=Quantizer(2.5, 6),
    )
    model = make_tiny_model(config, seed=4)
    model.save_pretrained(tmp_path / "a")
    loaded = SpartaModel.load(tmp_path / "a")
    assert loaded.config == config
    assert same_state(model, loaded)
    assert not loaded.training
    np.testing.assert_array_equal(dense(loaded, TEXTS), dense(model, TEXTS))
    loaded.save_pretrained(tmp_path / "b")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_int8_is_close_and_deterministic(make_tiny_model: Make, tmp_path: Path) -> None:
    model = make_tiny_model()
    for name in ("a", "b"):
        model.save_pretrained(tmp_path / name, int8=True)
    model.save_pretrained(tmp_path / "full")
    weights = [(tmp_path / name / "model.safetensors") for name in ("a", "b", "full")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert weights[0].stat().st_size < 0.6 * weights[2].stat().st_size
    modes = {path.stat().st_mode for path in (tmp_path / "a").iterdir()}
    assert len(modes) == 1, "who may read the configuration may read the weights"
    loaded = SpartaModel.load(tmp_path / "a")
    assert same_state(loaded, SpartaModel.load(tmp_path / "b"))
    assert np.abs(dense(loaded, TEXTS) - dense(model, TEXTS)).max() < 0.05
    loaded.save_pretrained(tmp_path / "c", int8=True)
    assert same_state(loaded, SpartaModel.load(tmp_path / "c")), "saving what was loaded loses nothing more"


def test_quantize_rows(tmp_path: Path) -> None:
    values = torch.randn(70, 64, generator=torch.Generator().manual_seed(0))
    values[3] = 0
    integers, scale = quantize_rows(values)
    assert integers.dtype == torch.int8
    assert integers.abs().amax(dim=1).tolist() == [0 if row == 3 else 127 for row in range(70)]
    assert ((integers * scale[:, None] - values).abs() <= scale[:, None] / 2 + 1e-7).all()
    state = {
        "large": values,
        "vector": values[0],
        "small": values[:2],
        "ids": torch.arange(5000).view(100, 50),
    }
    save_state(tmp_path / "s.safetensors", state, int8=True)
    loaded = load_state(tmp_path / "s.safetensors")
    assert loaded.keys() == state.keys()
    assert torch.equal(loaded["large"], integers.float() * scale[:, None])
    for name in ("vector", "small", "ids"):
        assert torch.equal(loaded[name], state[name])


def test_a_model_on_an_encoder(make_tiny_model: Make, tmp_path: Path) -> None:
    source = make_tiny_model()
    source.encoder.half().save_pretrained(tmp_path / "encoder")
    source.tokenizer.save(str(tmp_path / "encoder" / "tokenizer.json"))
    model = SpartaModel.from_encoder(tmp_path / "encoder")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.term_embeddings is not None
    assert torch.equal(model.term_embeddings, model.encoder.get_input_embeddings().weight)
    model.term_embeddings.data += 1
    assert not torch.equal(model.term_embeddings, model.encoder.get_input_embeddings().weight)
    model.save_pretrained(tmp_path / "saved")
    assert str(tmp_path) not in (tmp_path / "saved" / "config.json").read_text()
    assert same_state(SpartaModel.load(tmp_path / "saved"), model), (
        "float32, whatever the encoder was saved in"
    )


def test_an_encoder_with_narrower_word_embeddings_is_refused(tmp_path: Path) -> None:
    from transformers import ElectraConfig, ElectraModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    ElectraModel(ElectraConfig(vocab_size=9, embedding_size=4, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"as wide as the states \(8\), found 4") as refused:
        SpartaModel.from_encoder(tmp_path)
    assert refused.value.remedy.options == [Option("encoder")]


def test_encoders_with_computed_buffers_load(tiny_model: SpartaModel, tmp_path: Path) -> None:
    """ModernBERT has rotary tables, which are not in its weights."""
    from transformers import ModernBertConfig, ModernBertModel

    config = ModernBertConfig(
        vocab_size=tiny_model.tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=0,
        cls_token_id=12,
        sep_token_id=13,
        bos_token_id=12,
        eos_token_id=13,
    )
    torch.manual_seed(0)
    model = SpartaModel(ModernBertModel(config), tiny_model.tokenizer, SpartaConfig(quantizer=Quantizer(1.0)))
    model.scale.data.fill_(5)
    model.save_pretrained(tmp_path)
    loaded = SpartaModel.load(tmp_path)
    np.testing.assert_array_equal(dense(loaded, TEXTS[:3]), dense(model.eval(), TEXTS[:3]))


def test_a_tokenizer_with_more_words_than_terms_is_refused(make_tiny_model: Make) -> None:
    model = make_tiny_model()
    model.tokenizer.add_tokens(["newword"])
    with pytest.raises(ModelError, match=r"365 wordpieces, .* 364 term embeddings"):
        SpartaModel(model.encoder, model.tokenizer, model.config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["sparta"].update(format_version=2), "expected a model of format 1 or older, found 2"),
        (lambda c: c["sparta"].pop("format_version"), "found None"),
        (lambda c: c["sparta"].update(layout={"max_size": 3}), "not valid"),
        (lambda c: c["sparta"].update(unheard_of=3), "not valid"),
        (lambda c: c["sparta"]["quantizer"].update(bits=99), "not valid: the number of bits must be 1 to 16"),
        (lambda c: c.update(sparta=[1]), "expected a sparta object, found list"),
        (lambda c: c.update(model_type="no-such-model"), "expected the configuration of an encoder"),
        (lambda c: c.pop("model_type"), "expected the configuration of an encoder"),
        (lambda c: c.update(hidden_size=64), "weights that fit"),
        (lambda c: c.update(num_hidden_layers=3), "weights that fit"),
        (lambda c: c["sparta"].update(tied=True), "weights that fit"),
    ],
)
def test_broken_configurations_are_refused(
    tiny_model_folder: Path, tmp_path: Path, change: Callable[[dict[str, object]], object], message: str
) -> None:
    folder = broken_copy(tiny_model_folder, tmp_path / "broken", change)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{", "expected a JSON object, could not read it"),
        ("config.json", b"[]", "expected a JSON object, found list"),
        ("config.json", None, "it has no config.json"),
        ("model.safetensors", b"\x00" * 20, "expected model weights in safetensors form"),
        ("model.safetensors", None, "expected model weights in safetensors form"),
        ("tokenizer.json", b"{}", "tokenizer"),
        ("tokenizer.json", None, "no usable tokenizer"),
    ],
)
def test_broken_files_are_refused(
    tiny_model_folder: Path, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "broken"))
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_a_truncated_weights_file_is_refused(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model_folder, tmp_path / "broken"))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="could not read them"):
        load_model(folder)
