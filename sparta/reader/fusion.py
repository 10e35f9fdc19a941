"""Fusion-in-Encoder (Chain-of-Skills, §6, Appendix C): a question's passages attend to each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from sparta.base.errors import ModelError
from sparta.neural.bert import Bert, Output

ELECTRA = "electra"
"""The model type of the paper's encoder, whose layers are BERT's."""


class FusedEncoder(nn.Module):
    """A BERT or Electra encoder with global tokens that all passages of a question share.

    In every layer, a passage's tokens attend to this passage and to the global tokens. The global tokens
    attend to all tokens of all passages of the question, and to each other. One call reads one question.
    """

    def __init__(self, encoder: nn.Module, global_tokens: int) -> None:
        super().__init__()
        config: Any = getattr(encoder, "config", None)
        if not isinstance(encoder, Bert) and getattr(config, "model_type", "") != ELECTRA:
            raise ModelError(
                f"a reader with global tokens needs BERT or Electra, found {type(encoder).__name__}",
                remedy="name the folder of a BERT or Electra, or train a reader without global tokens",
            )
        self.encoder = encoder
        self.heads = int(config.num_attention_heads)
        self.global_states = nn.Parameter(torch.randn(global_tokens, config.hidden_size) * 0.02)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> Output:
        """Return the states of one question's windows; all arguments are `(n, length)`."""
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        encoder: Any = self.encoder
        states = encoder.embeddings(input_ids, segments)
        if hasattr(encoder, "embeddings_project"):  # Electra's embeddings may be narrower than its states
            states = encoder.embeddings_project(states)
        global_states = self.global_states.to(states.dtype)
        mask = attention_mask.bool()
        for layer in encoder.encoder.layer:
            states, global_states = _layer(layer, self.heads, states, global_states, mask)
        return Output(states)


def _layer(
    layer: Any, n_heads: int, states: torch.Tensor, global_states: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one layer of BERT or Electra over passages `(n, length, width)` and global tokens `(g, width)`."""
    heads, (n, length, width), global_count = layer.attention.self, states.shape, len(global_states)

    def split(projection: Any, rows: torch.Tensor) -> torch.Tensor:
        return projection(rows).unflatten(-1, (n_heads, -1)).transpose(-3, -2)  # (…, heads, length, size)

    keys, values = split(heads.key, states), split(heads.value, states)
    global_keys, global_values = split(heads.key, global_states), split(heads.value, global_states)
    passage_attention = functional.scaled_dot_product_attention(
        split(heads.query, states),
        torch.cat([keys, global_keys.expand(n, *global_keys.shape)], dim=2),
        torch.cat([values, global_values.expand(n, *global_values.shape)], dim=2),
        attn_mask=torch.cat([mask, mask.new_ones(n, global_count)], dim=1)[:, None, None, :].expand(
            n, 1, length, -1
        ),
    )
    global_attention = functional.scaled_dot_product_attention(
        split(heads.query, global_states),
        torch.cat([keys.transpose(0, 1).flatten(1, 2), global_keys], dim=1),
        torch.cat([values.transpose(0, 1).flatten(1, 2), global_values], dim=1),
        attn_mask=torch.cat([mask.flatten(), mask.new_ones(global_count)])[None, None, :].expand(
            1, global_count, -1
        ),
    )
    mixed = (
        passage_attention.transpose(1, 2).reshape(n, length, width),
        global_attention.transpose(0, 1).reshape(global_count, width),
    )
    attended = (
        layer.attention.output(mixed[0], states),
        layer.attention.output(mixed[1], global_states),
    )
    return (
        layer.output(layer.intermediate(attended[0]), attended[0]),
        layer.output(layer.intermediate(attended[1]), attended[1]),
    )
