"""What all passage encoders share: a weight for every term of the vocabulary (SPARTA, §3.2, eq. 2 to 6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.prune import check_top_k
from sparta.models.quantize import QueryQuantizer
from sparta.models.query_encoder import QuerySide, QueryTokenizer, is_punctuation
from sparta.neural.encoding import LARGEST_BATCH

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
        batch_size: int = LARGEST_BATCH,
        show_progress_bar: bool = False,
        device: str | None = None,
        max_active_dims: int | None = None,
        dtype: str = "auto",
    ) -> scipy.sparse.csr_matrix:
        """Passages (or bare texts) to `(n, vocabulary) float32`, a row for each (eq. 4 to 6)."""
        from scipy.sparse import csr_matrix

        from sparta.models.document_encoder import DocumentEncoder

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
        batch_size: int = LARGEST_BATCH,
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
        check_top_k(top_k)
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
