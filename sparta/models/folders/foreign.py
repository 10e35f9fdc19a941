"""Loading BEIR's SPARTA checkpoints and masked language models (SPLADE) in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.errors import ModelError
from sparta.models.config import SpartaConfig
from sparta.models.folders.sparse_folder import Network, read_beir_folder, read_sparse_folder
from sparta.models.sparse import SparseEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import encoder_config, load_encoder
from sparta.neural.checkpoint import from_pretrained


def load_beir_sparta(folder: Path, *, pool_special: bool = False) -> SparseEncoder:
    """Load a plain encoder as BEIR loads SPARTA checkpoints: terms have word embeddings and no bias.

    Title and text are joined by a space, an input has at most 500 wordpieces, and segments are not used.
    Differences to BEIR's code:

    - BEIR's maximum (eq. 4) covers every position of the padded batch. Thus [CLS], [SEP] and padding count,
      and a passage's weights depend on the batch. Here padding never counts; [CLS] and [SEP] count only with
      `pool_special`, which the model's configuration stores.
    - BEIR drops wordpieces after the first 500. Here further, overlapping windows encode them.
    - BEIR keeps the 2000 strongest terms. Here the caller chooses (`top_k`).
    - Unused vocabulary entries and special tokens have no weights.
    """
    encoder = load_encoder(folder)
    read = read_beir_folder(folder, encoder_config(encoder), pool_special=pool_special)
    return SpartaModel(encoder, read.tokenizer, read.config).eval()


class SpladeDocumentEncoder(SparseEncoder):
    """A masked language model as document encoder: its last layer holds each term's embedding and bias.

    The last layer (the decoder) is removed from the model, which then returns the transformed hidden
    states. The caller multiplies them with the term embeddings.
    """

    def __init__(
        self,
        language_model: nn.Module,
        tokenizer: Tokenizer,
        config: SpartaConfig,
    ) -> None:
        super().__init__(tokenizer, config)
        self.decoder = _take_decoder(language_model)
        self.language_model = language_model
        self.has_query_network = True
        self.check_vocabulary()

    def set_queries(self, weights: npt.NDArray[np.float32] | None, *, has_network: bool) -> None:
        """Set the weight of each query term, or that a network encodes queries."""
        self._query_weights, self.has_query_network = weights, has_network

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return the states before the decoder; segments are not used."""
        states: torch.Tensor = self.language_model(input_ids=ids, attention_mask=mask).logits
        return states

    def term_matrix(self) -> torch.Tensor:
        """Return the decoder's weight rows."""
        return self.decoder.weight

    def term_bias(self) -> torch.Tensor:
        """Return the decoder's bias, `(vocabulary,)`; a scalar 0 if it has none."""
        return self.decoder.bias if self.decoder.bias is not None else self.decoder.weight.new_zeros(())


def load_sparse_encoder(folder: Path) -> SparseEncoder:
    """Load a SPLADE, or an inference-free model of sentence-transformers or OpenSearch.

    The document side is a masked language model with max pooling. As in sentence-transformers, the maximum
    covers all positions except padding. If a table has the query weights, a distinct query token counts once.
    Differences to sentence-transformers:

    - With a table, special tokens, unused entries and punctuation have no impacts and no query weights. So a
      query with punctuation or an unknown word can have other scores.
    - Longer texts are encoded in overlapping windows instead of being truncated.
    - A title is joined to its text by a space.
    - Negative query weights count as 0, since an impact index can only add.

    :raises ModelError: the folder is of another kind, or parts of the model are not supported.
    """
    read = read_sparse_folder(folder)
    model = load_language_model(Network(read.network, read.config), read.tokenizer)
    model.set_queries(read.query_weights, has_network=read.query_network is not None)
    return model


def load_language_model(network: Network, tokenizer: Tokenizer) -> SpladeDocumentEncoder:
    """Load a masked language model that encodes texts; its queries need the same network."""
    from transformers import AutoModelForMaskedLM

    language_model = from_pretrained(AutoModelForMaskedLM, network.folder)
    return SpladeDocumentEncoder(language_model, tokenizer, network.config).eval()


def _take_decoder(language_model: nn.Module) -> nn.Linear:
    """Replace the model's last layer by an identity, and return the layer.

    :raises ModelError: the model's logits are not the product of the states with this layer.
    """
    decoder = cast(Any, language_model).get_output_embeddings()
    decoder_path = next((name for name, module in language_model.named_modules() if module is decoder), None)
    if not isinstance(decoder, nn.Linear) or decoder_path is None:
        raise ModelError(
            f"the masked language model must have a linear decoder, found {type(decoder).__name__}"
        )
    probe = torch.arange(4)[None]
    with torch.inference_mode():
        expected = language_model(input_ids=probe).logits
        parent, _, name = decoder_path.rpartition(".")
        setattr(language_model.get_submodule(parent), name, nn.Identity())
        states = language_model(input_ids=probe).logits
        fits = states.shape[-1] == decoder.in_features and torch.allclose(
            decoder(states), expected, atol=1e-4
        )
    if not fits:
        raise ModelError(
            f"{type(language_model).__name__} changes its decoder's output, which sparta does not support"
        )
    return decoder
