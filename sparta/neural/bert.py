"""BERT in plain PyTorch, because importing transformers takes longer than encoding a small corpus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Output(NamedTuple):
    """The output of an encoder: `last_hidden_state (n, length, width)`."""

    last_hidden_state: torch.Tensor


class Bert(nn.Module):
    """The encoder of BERT (Devlin et al., 2019, §3) without a pooler.

    Weights have the same names as in transformers' BertModel. The operations have the same order too, so
    that states, gradients and random numbers are equal. `config` is the content of a config.json. A new
    instance has no weights yet.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.embeddings = _Embeddings(self.config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(_Layer(self.config) for _ in range(self.config.num_hidden_layers))

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the word embeddings."""
        return self.embeddings.word_embeddings

    def set_attn_implementation(self, name: str) -> None:
        """Choose the attention for training: `sdpa` (torch's fused kernel) or `eager` (matrix products)."""
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            layer.attention.self.eager = name == "eager"

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> Output:
        """Return the hidden states. All inputs are `(n, length)`; a mask of 0 marks padding."""
        mask = attention_mask.bool()
        attention_mask_4d = None if bool(mask.all()) else mask[:, None, None, :]
        states = self.embeddings(
            input_ids, torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        )
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            states = layer(states, attention_mask_4d)
        return Output(states)


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Leave the weights uninitialized: they are loaded later, and drawing them would take longer."""


class _Embedding(nn.Embedding):
    def reset_parameters(self) -> None:
        """Leave the weights uninitialized, as in `_Linear`."""


class _Embeddings(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        width = config.hidden_size
        padding = getattr(config, "pad_token_id", None)
        self.word_embeddings = _Embedding(config.vocab_size, width, padding_idx=padding)
        self.position_embeddings = _Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = _Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, ids: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        states = self.word_embeddings(ids) + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(states + self.position_embeddings(positions)))


class _Layer(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.intermediate = _Intermediate(config)
        self.output = _AddAndNorm(config.intermediate_size, config)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        states = self.attention(states, mask)
        return self.output(self.intermediate(states), states)


class _Attention(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.self = _Heads(config)
        self.output = _AddAndNorm(config.hidden_size, config)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.output(self.self(states, mask), states)


class _Heads(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.heads, self.eager = config.num_attention_heads, False
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.query = _Linear(config.hidden_size, config.hidden_size)
        self.key = _Linear(config.hidden_size, config.hidden_size)
        self.value = _Linear(config.hidden_size, config.hidden_size)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        n, length, width = states.shape
        query, key, value = (
            projection(states).view(n, length, self.heads, -1).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        if self.eager and self.training:
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
            if mask is not None:
                lowest = torch.finfo(scores.dtype).min
                scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, lowest)
            context = self.dropout(scores.softmax(-1).to(value.dtype)) @ value
        else:
            dropout = self.dropout.p if self.training else 0.0
            mask = None if mask is None else mask.expand(n, 1, length, length)
            context = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=dropout
            )
        return context.transpose(1, 2).reshape(n, length, width)


class _Intermediate(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.dense = _Linear(config.hidden_size, config.intermediate_size)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.dense(states))


class _AddAndNorm(nn.Module):
    """A linear layer with dropout, whose output is added to an earlier state and normalized."""

    def __init__(self, size: int, config: SimpleNamespace) -> None:
        super().__init__()
        self.dense = _Linear(size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(states)) + residual)
