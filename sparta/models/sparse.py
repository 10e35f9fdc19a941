"""The base class of sparse encoders in torch, for training and GPUs (SPARTA, §3.2, eq. 2 to 6)."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.models.backends.base import Backend
from sparta.models.config import SpartaConfig
from sparta.models.model import SparseModel
from sparta.neural.batches import GPU_TOKENS
from sparta.neural.encoding import dtype_name


class SparseEncoder(SparseModel, nn.Module):
    """Base class of document encoders: hidden states times a term matrix, then maximum, ReLU and log.

    Subclasses provide the hidden states, the term matrix `(vocabulary, hidden)` and the bias (a scalar, or
    one per term).
    """

    runtime = "torch"

    def __init__(self, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        nn.Module.__init__(self)
        self.tokenizer = tokenizer
        self.config = config
        self.name = ""
        self.identity = ""

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return `(n, length, hidden)` states for `(n, length)` ids, mask and segments."""
        raise NotImplementedError

    def term_matrix(self) -> torch.Tensor:
        """Return the term embeddings e_t of eq. 4, `(vocabulary, hidden)`."""
        raise NotImplementedError

    def term_bias(self) -> torch.Tensor:
        """Return the bias of eq. 5: a scalar, or `(vocabulary,)`."""
        raise NotImplementedError

    def last_norm(self) -> nn.LayerNorm | None:
        """Return the LayerNorm whose outputs are the hidden states; None if it is not known."""
        return None

    def lexical_gains(self) -> torch.Tensor | None:
        """Return the weight of one occurrence of each term, `(vocabulary,)`, at least 0.

        None means that occurrences add no weight.
        """
        return None

    def excluded_terms(self) -> torch.Tensor:
        """Return `excluded` as a tensor, `(vocabulary,) bool`."""
        return torch.from_numpy(self.excluded())

    @property
    def n_terms(self) -> int:
        """The number of term embeddings."""
        return self.term_matrix().shape[0]

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @property
    def device_name(self) -> str:
        """The name of the device of the parameters."""
        return str(self.device)

    def on_device(self, device: str | None) -> SparseEncoder:
        """Move the model to a device, and return it; None means where it is."""
        return self.to(torch.device(device)) if device else self

    def arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of `dtype` on the model's device: bf16, fp16 or fp32."""
        return dtype_name(dtype, self.device)

    def backend(self, dtype: str = "auto", token_budget: int = GPU_TOKENS) -> Backend:
        """Return the torch backend; see `SparseModel.backend`."""
        from sparta.models.backends.torch import TorchBackend

        return TorchBackend(self, dtype, token_budget)
