"""The models: a passage becomes a weight for every word of the vocabulary (SPARTA, §3.2, eq. 2 to 6)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from sparta.base.errors import ModelError
from sparta.base.files import atomic_write
from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.document_encoder import DocumentEncoder
from sparta.models.quantize import QueryQuantizer
from sparta.models.query_encoder import QuerySide, QueryTokenizer, is_punctuation, load_tokenizer
from sparta.neural.backbones import blank_encoder, encoder_config, load_encoder
from sparta.neural.checkpoint import load_state, read_json, save_state
from sparta.neural.inputs import Lexical

if TYPE_CHECKING:
    import scipy.sparse

_UNUSED = re.compile(r"\[unused\d+\]")


class SparseEncoder(nn.Module):
    """What all document encoders share: hidden states times a term matrix, maximum, ReLU, log.

    A subclass says where hidden states, term matrix `(vocabulary, hidden)` and bias (a scalar or one a term)
    come from.
    """

    def __init__(self, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.config = config
        self.name = ""
        self.identity = ""

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """`(n, length)` ids, mask, segments to `(n, length, hidden)` states."""
        raise NotImplementedError

    def term_matrix(self) -> torch.Tensor:
        """`(vocabulary, hidden)`: the rows e_t of eq. 4."""
        raise NotImplementedError

    def term_bias(self) -> torch.Tensor:
        """Return the bias of eq. 5: a scalar, or `(vocabulary,)`."""
        raise NotImplementedError

    @property
    def query_weights(self) -> npt.NDArray[np.float32] | None:
        """`(vocabulary,)`: what a query's term counts, once; None: 1, each time that it occurs."""
        return None

    @property
    def query_quantizer(self) -> QueryQuantizer | None:
        """Return the grid of the query weights: the configuration's, else one that fits them."""
        weights = self.query_weights
        return None if weights is None else self.config.query_quantizer or QueryQuantizer.fit(weights)

    def lexical_gains(self) -> torch.Tensor | None:
        """`(vocabulary,)`, 0 or more: what an occurrence of each term is worth; None: nothing is added."""
        return None

    def excluded_terms(self) -> torch.Tensor:
        """`(vocabulary,) bool`: entries that get no impacts: special and unused ones, and punctuation."""
        excluded = torch.zeros(self.term_matrix().shape[0], dtype=torch.bool)
        special = {i for i, t in self.tokenizer.get_added_tokens_decoder().items() if t.special}
        vocabulary = self.tokenizer.get_vocab().items()
        wordless = {i for t, i in vocabulary if _UNUSED.fullmatch(t) or is_punctuation(t)}
        ids = [i for i in special | wordless if i < len(excluded)]
        excluded[ids] = True
        excluded[self.tokenizer.get_vocab_size() :] = True
        return excluded

    def check_vocabulary(self) -> None:
        """Refuse a tokenizer that knows more wordpieces than the model has term embeddings."""
        known, terms = self.tokenizer.get_vocab_size(), self.term_matrix().shape[0]
        if known > terms:
            raise ModelError(
                f"expected at most {terms} wordpieces, as many as term embeddings, found {known}",
                remedy="use the tokenizer that the model was trained with",
            )

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    # ------------------------------------------------------------------ documents

    def encode_document(
        self,
        inputs: str | Passage | Sequence[str | Passage],
        *,
        batch_size: int = 256,
        show_progress_bar: bool = False,
        device: str | None = None,
        max_active_dims: int | None = None,
        dtype: str = "auto",
    ) -> scipy.sparse.csr_matrix:
        """Passages (or bare texts) to `(n, vocabulary) float32`, a row for each (eq. 4 to 6)."""
        from scipy.sparse import csr_matrix

        single = isinstance(inputs, str | Passage)
        texts = [inputs] if isinstance(inputs, str | Passage) else list(inputs)
        passages = [t if isinstance(t, Passage) else Passage(str(i), t) for i, t in enumerate(texts)]
        if device:
            self.to(device)
        encoder = DocumentEncoder(self, dtype=dtype, max_batch=batch_size, top_k=max_active_dims)
        with tqdm(total=len(passages), unit="passage", disable=not show_progress_bar) as bar:
            rows, _ = encoder.encode(passages, bar.update)
        matrix = csr_matrix(
            (rows.weights, rows.term_ids, rows.indptr), shape=(len(rows), self.term_matrix().shape[0])
        )
        return matrix[:1] if single else matrix

    def encode_query(
        self,
        inputs: str | Sequence[str],
        *,
        batch_size: int = 256,
        show_progress_bar: bool = False,
        device: str | None = None,
        max_active_dims: int | None = None,
    ) -> scipy.sparse.csr_matrix:
        """Queries to `(n, vocabulary) float32`: how much each term counts, in weights of the model's grid.

        With `max_active_dims` only the terms that count most are kept. The other options are those of
        `encode_document`, so that both can be called alike; a lookup has no use for them.
        """
        from scipy.sparse import csr_matrix

        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        tokenizer = self.query_tokenizer()
        bags = [tokenizer.bag(text) for text in texts]
        if max_active_dims is not None:
            bags = [dict(sorted(bag.items(), key=lambda t: (-t[1], t[0]))[:max_active_dims]) for bag in bags]
        indptr = np.cumsum([0, *(len(bag) for bag in bags)])
        ids = np.array([i for bag in bags for i in bag], dtype=np.int32)
        weights = np.array([w for bag in bags for w in bag.values()], dtype=np.float32) * tokenizer.step
        return csr_matrix((weights, ids, indptr), shape=(len(bags), self.term_matrix().shape[0]))

    def query_tokenizer(self) -> QueryTokenizer:
        """Queries to bags of terms."""
        weights, grid = self.query_weights, self.query_quantizer
        if weights is None or grid is None:
            return QueryTokenizer(self.tokenizer)
        return QueryTokenizer(self.tokenizer, grid.integers(weights), grid.step)

    def query_side(self) -> QuerySide:
        """Return what of this model travels in an index."""
        if self.config.quantizer is None:
            raise ModelError(
                "the model has no quantizer", remedy="load it with sparta.models.load.load_model"
            )
        return QuerySide(
            self.tokenizer,
            self.query_tokenizer().weights,
            self.name,
            self.identity,
            self.config.quantizer,
            self.query_quantizer,
        )

    def decode(
        self, embeddings: scipy.sparse.csr_matrix, top_k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """Return each row's strongest terms as `(wordpiece, weight)`, strongest first (SPARTA, Table 6)."""
        decoded = []
        for row in embeddings.tocsr():
            order = np.lexsort((row.indices, -row.data))[:top_k]
            decoded.append(
                [(self.tokenizer.id_to_token(int(row.indices[i])) or "", float(row.data[i])) for i in order]
            )
        return decoded

    def similarity(
        self, queries: scipy.sparse.csr_matrix, documents: scipy.sparse.csr_matrix
    ) -> npt.NDArray[np.float32]:
        """Eq. 6 for every pair: `(n_queries, n_documents) float32`."""
        return (queries @ documents.T).toarray()


class SpartaModel(SparseEncoder):
    """SPARTA: a transformer for the answer, a table of term embeddings for the question.

    `scale` multiplies the dot product of eq. 4 before the bias; it could be folded into the term embeddings
    and is kept apart because one number is learnt faster than a table. With `tied` the table is the encoder's
    own. With `lexical`, `gains` has a number for each term, which counts as often as the term occurs in the
    answer. With `weighted_queries`, `query_term_weights` has what each term counts in a question.
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        super().__init__(tokenizer, config)
        self.encoder = encoder
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.term_embeddings = None if config.tied else nn.Parameter(_words(encoder).detach().clone())
        self.gains = nn.Parameter(torch.zeros(len(self.term_matrix()))) if config.lexical else None
        self.query_term_weights: nn.Parameter | None = None
        if config.weighted_queries:
            self.add_query_weights()
        self._encoder_config = encoder_config(encoder)
        self._segments = self._encoder_config.get("type_vocab_size", 0) >= 2
        self.check_vocabulary()

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return the encoder's last hidden states."""
        extra = {"token_type_ids": segments} if self._segments else {}
        return self.encoder(input_ids=ids, attention_mask=mask, **extra).last_hidden_state

    def term_matrix(self) -> torch.Tensor:
        """Return the term embeddings, before `scale`."""
        return _words(self.encoder) if self.term_embeddings is None else self.term_embeddings

    def term_bias(self) -> torch.Tensor:
        """Return the scalar b."""
        return self.bias

    def lexical_gains(self) -> torch.Tensor | None:
        """Return the gains, those below 0 as 0."""
        return None if self.gains is None else self.gains.clamp_min(0)

    @property
    def query_weights(self) -> npt.NDArray[np.float32] | None:
        """Return the weights, those below 0 as 0."""
        if self.query_term_weights is None:
            return None
        return self.query_term_weights.detach().clamp_min(0).float().cpu().numpy()

    def add_query_weights(self) -> None:
        """Let each distinct term of a question count a weight of its own, once: 1 to begin with.

        They are no part of what other trainings move.
        """
        self.config = replace(self.config, weighted_queries=True)
        ones = torch.ones(len(self.term_matrix()), device=self.term_matrix().device)
        self.query_term_weights = nn.Parameter(ones, requires_grad=False)

    def add_lexical(self, lexical: Lexical, gains: torch.Tensor) -> None:
        """Let occurrences count: `gains (vocabulary,)` is what one of each term is worth."""
        self.config = replace(self.config, lexical=lexical)
        self.gains = nn.Parameter(gains.float())

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; with `int8`, in 8 bits with row scales."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            **self._encoder_config,
            "architectures": ["SpartaModel"],
            "dtype": "float32",
            "sparta": self.config.as_dict(),
        }
        save_state(folder / "model.safetensors", self.state_dict(), int8=int8)
        atomic_write(folder / "tokenizer.json", self.tokenizer.to_str(pretty=True).encode())
        atomic_write(folder / "config.json", (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())

    @staticmethod
    def from_encoder(name: str | Path, config: SpartaConfig | None = None) -> SpartaModel:
        """Return a new, untrained model on a pretrained encoder (folder or hub id)."""
        return SpartaModel(load_encoder(name), load_tokenizer(name), config or SpartaConfig())

    @staticmethod
    def load(folder: Path) -> SpartaModel:
        """Return a model that `save_pretrained` wrote."""
        raw = read_json(folder / "config.json")
        config = SpartaConfig.from_dict(raw.pop("sparta", None), str(folder / "config.json"))
        model = SpartaModel(blank_encoder(raw, str(folder)), load_tokenizer(folder), config)
        state = load_state(folder / "model.safetensors")
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ModelError(
                f"the weights do not fit the configuration: {error}",
                where=str(folder),
                remedy="copy the model folder again, whole",
            ) from error
        return model.eval()


def _words(encoder: nn.Module) -> torch.Tensor:
    words: torch.Tensor = cast(Any, encoder).get_input_embeddings().weight
    return words
