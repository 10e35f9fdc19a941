"""The torch module that is exported for OpenVINO: an encoder from ids, mask and segments to states."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sparta.neural.backbones import encoder_config, token_types


class StatesModule(nn.Module):
    """Returns an encoder's last hidden states; takes segments only if the encoder has them."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        choose = getattr(encoder, "set_attn_implementation", None)
        if choose:
            choose("eager")  # other implementations build masks that depend on the example
        self.encoder, self._config = encoder, encoder_config(encoder)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the states `(n, length, width)`; all arguments are `(n, length)`."""
        types = {} if segments is None else token_types(self._config, segments)
        states: torch.Tensor = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        return states

    def example(self, n: int, length: int) -> tuple[Any, ...]:
        """Return arguments of `forward` with random ids; the first text ends before the others."""
        generator = torch.Generator().manual_seed(n * length)
        ids = torch.randint(5, int(self._config["vocab_size"]), (n, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, length - length // 3 :] = 0 if n > 1 else 1
        segments = token_types(self._config, ids % 2)
        return ids, mask, *segments.values()
