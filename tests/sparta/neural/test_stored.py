"""The lengths that configurations of encoders allow, against transformers' encoders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option
from sparta.neural.backbones import encoder_config
from sparta.neural.stored import check_length, read_settings, usable_positions

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
DISTIL = {"dim": 8, "n_layers": 1, "n_heads": 1, "hidden_dim": 8}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bert", SIZES),
        ("distilbert", DISTIL),
        ("roberta", SIZES),
        ("roberta", {**SIZES, "pad_token_id": 3}),
        ("xlm-roberta", SIZES),
        ("camembert", SIZES),
        ("mpnet", SIZES),
        ("mpnet", {**SIZES, "pad_token_id": 3}),
    ],
)
def test_an_encoder_reads_exactly_its_usable_positions(kind: str, options: dict[str, int]) -> None:
    config = AutoConfig.for_model(kind, vocab_size=30, max_position_embeddings=12, **options)
    encoder = AutoModel.from_config(config)
    length = usable_positions(encoder_config(encoder))
    assert length is not None

    def read(n: int) -> None:
        encoder(input_ids=torch.full((1, n), 9), attention_mask=torch.ones(1, n, dtype=torch.long))

    read(length)
    with pytest.raises((IndexError, RuntimeError)):
        read(length + 1)
    check_length(length, encoder_config(encoder))
    message = f"model/config.json: expected at most {length} wordpieces, .* found {length + 1}"
    with pytest.raises(ModelError, match=message):
        check_length(length + 1, encoder_config(encoder), Path("model"))
    with pytest.raises(InputError, match=f"expected at most {length} wordpieces") as caught:
        check_length(length + 1, encoder_config(encoder), option="train_length")
    assert caught.value.remedy.options == [Option("train_length", length)]


def test_without_a_table_of_positions_the_length_is_unlimited() -> None:
    assert usable_positions({"model_type": "roberta"}) is None


def test_a_missing_file_has_no_settings_but_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    assert read_settings(None) == read_settings(file) == {}
    file.write_text('{"a": 1}')
    assert read_settings(file) == {"a": 1}
    file.write_text("{")
    with pytest.raises(ModelError, match="expected a JSON object"):
        read_settings(file)
