"""Fusion-in-Encoder against one long sequence with a mask that says who sees whom."""

import pytest
import torch

from sparta.base.errors import ModelError
from sparta.neural.bert import Bert
from sparta.reader.fusion import FusedEncoder

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
    with pytest.raises(ModelError, match="needs a BERT encoder, found Linear"):
        FusedEncoder(torch.nn.Linear(2, 2), 2)
