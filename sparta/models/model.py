"""Sparse encoders of passages and queries, independent of what computes the passages' weights."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.checks import vocabulary_size
from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.models.backends.base import Backend
from sparta.models.config import SpartaConfig
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.prune import check_top_k
from sparta.models.quantize import QueryQuantizer
from sparta.models.query_encoder import QuerySide, QueryTokenizer, is_punctuation
from sparta.neural.batches import GPU_TOKENS, LARGEST_BATCH

if TYPE_CHECKING:
    import scipy.sparse

_UNUSED = re.compile(r"\[unused\d+\]")


class SparseModel(ABC):
    """Base class of sparse encoders: passages and queries become weights of terms (SPARTA, §3.2, eq. 2 to 6).

    Subclasses provide the number of terms, the query-term weights, and what computes the weights.
    """

    tokenizer: Tokenizer
    config: SpartaConfig
    name: str
    identity: str
    runtime: str
    """The name of the runtime that encodes: `openvino` or `torch`."""
    _query_weights: npt.NDArray[np.float32] | None = None
    has_query_network: bool = False
    """Whether a network encodes queries (SPLADE); otherwise queries are tokenized."""
    lexical: LexicalTerms | None = None
    """The terms beyond wordpieces; None for models without them."""

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """The number of term embeddings."""

    @property
    def query_weights(self) -> npt.NDArray[np.float32] | None:
        """The weight of each query term, `(vocabulary,)`; a term counts once per query.

        None means that every occurrence of a term counts 1.
        """
        return self._query_weights

    @property
    def query_quantizer(self) -> QueryQuantizer | None:
        """The grid of the query-term weights: the configuration's, otherwise fitted to the weights."""
        weights = self.query_weights
        return None if weights is None else self.config.query_quantizer or QueryQuantizer.fit(weights)

    @abstractmethod
    def on_device(self, device: str | None) -> SparseModel:
        """Return this model on a device; None means where it is."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """The name of the model's device, such as `cpu` or `cuda:0`."""

    @abstractmethod
    def arithmetic(self, dtype: str) -> str:
        """Return the arithmetic of `dtype` on the model's device: int8, bf16, fp16 or fp32."""

    def runtime_name(self, dtype: str) -> str:
        """Return the runtime and the arithmetic of `dtype`, such as `openvino int8`, for manifests."""
        return f"{self.runtime} {self.arithmetic(dtype)}"

    @abstractmethod
    def backend(self, dtype: str = "auto", token_budget: int = GPU_TOKENS) -> Backend:
        """Return the backend that computes the weights on the model's device.

        :param dtype: int8, bf16, fp16, fp32 or auto
        :param token_budget: the maximum number of tokens in a GPU's batch
        """

    def as_module(self) -> SparseModel:
        """Return this model as a torch module, which holds its weights and can be pickled."""
        return self

    def excluded(self) -> npt.NDArray[np.bool_]:
        """Return which terms get no impacts, `(vocabulary,)`: special and unused entries, and punctuation.

        A network that encodes queries may give these entries weights too, so it excludes none of them. Term
        embeddings beyond the tokenizer's wordpieces have no name in an index, so they are always excluded.
        """
        excluded = np.ones(self.n_terms, dtype=np.bool_)
        vocabulary = self.tokenizer.get_vocab()
        excluded[[i for i in vocabulary.values() if i < len(excluded)]] = False
        if self.has_query_network:
            return excluded
        special = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        wordless = {i for token, i in vocabulary.items() if _UNUSED.fullmatch(token) or is_punctuation(token)}
        excluded[[i for i in special | wordless if i < len(excluded)]] = True
        return excluded

    def check_vocabulary(self, wordpieces: int | None = None) -> None:
        """Check that the tokenizer has at most as many wordpieces as the model has term embeddings.

        :param wordpieces: the `vocabulary_size` of the tokenizer, if the caller has read the vocabulary
        :raises ModelError: the tokenizer has more wordpieces.
        """
        if wordpieces is None:
            wordpieces = vocabulary_size(self.tokenizer)
        if wordpieces > self.n_terms:
            raise ModelError(
                f"the tokenizer has {wordpieces} wordpieces, but the model has only {self.n_terms} term"
                " embeddings",
                remedy="use the tokenizer that the model was trained with",
            )

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
        """Encode passages (or texts) as a `(n, vocabulary) float32` matrix with one row per passage.

        The weights are those of SPARTA, eq. 4 to 6.

        :param max_active_dims: keep only the strongest terms of each passage
        """
        from scipy.sparse import csr_matrix

        from sparta.models.document_encoder import DocumentEncoder

        single = isinstance(inputs, str | Passage)
        texts = [inputs] if isinstance(inputs, str | Passage) else list(inputs)
        passages = [
            text if isinstance(text, Passage) else Passage(str(i), text) for i, text in enumerate(texts)
        ]
        encoder = DocumentEncoder(
            self.on_device(device), dtype=dtype, max_batch=batch_size, top_k=max_active_dims
        )
        from tqdm import tqdm

        with tqdm(total=len(passages), unit="passage", disable=not show_progress_bar) as bar:
            rows, _ = encoder.encode(passages, bar.update)
        matrix = csr_matrix((rows.weights, rows.term_ids, rows.indptr), shape=(len(rows), self.n_terms))
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
        """Encode queries as a `(n, vocabulary) float32` matrix of term weights on the model's grid.

        `batch_size`, `show_progress_bar` and `device` have no effect; they exist so that both encode
        methods take the same options.

        :param max_active_dims: keep only the strongest terms of each query
        """
        from scipy.sparse import csr_matrix

        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        tokenizer = self.query_tokenizer()
        bags = tokenizer.bags(texts)
        if max_active_dims is not None:
            bags = [
                dict(sorted(bag.items(), key=lambda entry: (-entry[1], entry[0]))[:max_active_dims])
                for bag in bags
            ]
        indptr = np.cumsum([0, *(len(bag) for bag in bags)])
        ids = np.array([i for bag in bags for i in bag], dtype=np.int32)
        weights = (
            np.array([weight for bag in bags for weight in bag.values()], dtype=np.float32) * tokenizer.step
        )
        return csr_matrix((weights, ids, indptr), shape=(len(bags), self.n_terms))

    def without_query_network(self) -> None:
        """Convert queries by tokenization: each distinct term of a query counts 1 (SPLADE-doc)."""
        if self.has_query_network:
            self.has_query_network = False
            self._query_weights = np.ones(self.n_terms, np.float32)
            self.config = replace(self.config, query_quantizer=QueryQuantizer(1.0, 1))

    def query_tokenizer(self) -> QueryTokenizer:
        """Return the tokenizer that converts queries to bags of terms."""
        if self.has_query_network:
            return self.query_side().query_tokenizer()
        weights, grid = self.query_weights, self.query_quantizer
        if weights is None or grid is None:
            return QueryTokenizer(self.tokenizer)
        return QueryTokenizer(self.tokenizer, grid.integers(weights), grid.step)

    def query_side(self) -> QuerySide:
        """Return the parts of this model that an index stores for searching.

        :raises ModelError: the model has no quantizer.
        """
        if self.config.quantizer is None:
            raise ModelError(
                "the model has no quantizer", remedy="load the model with sparta.models.load.load_model"
            )
        weights, grid = self.query_weights, self.query_quantizer
        return QuerySide(
            self.tokenizer,
            None if weights is None or grid is None else grid.integers(weights),
            self.name,
            self.identity,
            self.config.quantizer,
            self.config.query_quantizer if self.has_query_network else grid,
            self.has_query_network,
            self.lexical,
        )

    def decode(
        self, embeddings: scipy.sparse.csr_matrix, top_k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """Return each row's terms as `(wordpiece, weight)`, strongest first (SPARTA, Table 6).

        :param top_k: the maximum number of terms per row; None means all
        """
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
        """Return eq. 6 for every pair, `(n_queries, n_documents) float32`."""
        return (queries @ documents.T).toarray()
