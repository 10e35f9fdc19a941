"""The SPARTA model: a transformer encoder and a table of term embeddings (SPARTA, §3.2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.checks import path_of
from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.config import SpartaConfig
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.sparse import SparseEncoder
from sparta.neural.backbones import (
    blank_encoder,
    encoder_config,
    encoder_width,
    load_encoder,
    token_types,
)
from sparta.neural.checkpoint import load_state, save_model, with_weights
from sparta.neural.inputs import Lexical
from sparta.neural.stored import check_length, read_json


class SpartaModel(SparseEncoder):
    """SPARTA: a transformer encodes the answer, and a table of term embeddings encodes the query.

    `scale` multiplies the dot product of eq. 4 before the bias. It could be part of the term embeddings,
    but a single number learns faster than a table. With `tied`, the table is the encoder's word embedding
    table. With `lexical`, `gains` holds the weight of an occurrence of each term in the answer. With
    `weighted_queries`, `query_term_weights` holds the weight of each term in a query.
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        super().__init__(tokenizer, config)
        self.encoder = encoder
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.term_embeddings = (
            None if config.tied else nn.Parameter(_word_embeddings(encoder).detach().clone())
        )
        self.gains = nn.Parameter(torch.zeros(len(self.term_matrix()))) if config.lexical else None
        self.query_term_weights: nn.Parameter | None = None
        if config.weighted_queries:
            self.add_query_weights()
        self._encoder_config = encoder_config(encoder)
        self.check_vocabulary()

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return the encoder's last hidden states."""
        extra = token_types(self._encoder_config, segments)
        return self.encoder(input_ids=ids, attention_mask=mask, **extra).last_hidden_state

    def last_norm(self) -> nn.LayerNorm | None:
        """Return the LayerNorm of the last layer of a BERT; None for other encoders."""
        if self._encoder_config.get("model_type") != "bert":
            return None
        norm: nn.LayerNorm = cast(Any, self.encoder).encoder.layer[-1].output.LayerNorm
        return norm

    def term_matrix(self) -> torch.Tensor:
        """Return the term embeddings, before `scale`."""
        return _word_embeddings(self.encoder) if self.term_embeddings is None else self.term_embeddings

    def term_bias(self) -> torch.Tensor:
        """Return the scalar b of eq. 5."""
        return self.bias

    def lexical_gains(self) -> torch.Tensor | None:
        """Return the gains, with negative gains as 0."""
        return None if self.gains is None else self.gains.clamp_min(0)

    @property
    def query_weights(self) -> npt.NDArray[np.float32] | None:
        """The query-term weights, with negative weights as 0; None if the model has none."""
        if self.query_term_weights is None:
            return None
        return self.query_term_weights.detach().clamp_min(0).float().cpu().numpy()

    def add_query_weights(self) -> None:
        """Add query-term weights, all 1 at first: each distinct query term then counts its weight once.

        Other trainings do not change these weights.
        """
        self.config = replace(self.config, weighted_queries=True)
        ones = torch.ones(len(self.term_matrix()), device=self.term_matrix().device)
        self.query_term_weights = nn.Parameter(ones, requires_grad=False)

    def add_lexical(self, lexical: Lexical, gains: torch.Tensor) -> None:
        """Add weights for term occurrences.

        :param gains: `(vocabulary,)`, the weight of one occurrence of each term
        """
        self.config = replace(self.config, lexical=lexical)
        self.gains = nn.Parameter(gains.float())

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors, tokenizer.json and the lexical terms, if there are any.

        :param int8: store matrices in 8 bits with row scales
        """
        config = {
            **self._encoder_config,
            "architectures": ["SpartaModel"],
            "dtype": "float32",
            "sparta": self.config.as_dict(),
        }
        save_model(folder, self, config, int8=int8)
        if self.lexical:
            self.lexical.save(Path(folder))

    @staticmethod
    def from_encoder(name: str | Path, config: SpartaConfig | None = None) -> SpartaModel:
        """Return a new, untrained model with a pretrained encoder (folder or hub id).

        :raises ModelError: the encoder's word embeddings, which become the term embeddings, are narrower or
            wider than its states.
        """
        encoder = load_encoder(name)
        width, term_width = encoder_width(encoder), _word_embeddings(encoder).shape[1]
        if term_width != width:
            raise ModelError(
                f"SPARTA needs word embeddings as wide as the states ({width}), found {term_width}",
                where=str(name),
                remedy=remedy("choose another {}, such as BERT", Option("encoder")),
            )
        return SpartaModel(encoder, load_tokenizer(name), config or SpartaConfig())

    @staticmethod
    def load(folder: str | Path) -> SpartaModel:
        """Load a model that `save_pretrained` wrote.

        :raises ModelError: the folder is not a valid SPARTA model.
        """
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        config = SpartaConfig.from_dict(raw.pop("sparta", None), str(folder / "config.json"))
        check_length(config.layout.max_length, raw, folder)
        model = SpartaModel(blank_encoder(raw, str(folder)), load_tokenizer(folder), config)
        model.lexical = LexicalTerms.load(folder, model.tokenizer)
        return with_weights(model, load_state(folder / "model.safetensors"), str(folder))


def _word_embeddings(encoder: nn.Module) -> torch.Tensor:
    words: torch.Tensor = cast(Any, encoder).get_input_embeddings().weight
    return words
