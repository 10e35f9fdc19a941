"""Encoding queries with the network of a SPLADE model: log(1 + ReLU(logit)), maximum over the tokens.

The weights are rounded to integers on the query grid, so Lucene sums them exactly as it sums other queries.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from itertools import batched
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from sparta.base.errors import IndexStateError, ModelError
from sparta.base.remedies import Option, remedy
from sparta.data.languages import Language
from sparta.models.backends.base import Backend
from sparta.models.backends.openvino import OpenVinoBackend
from sparta.models.config import SpartaConfig
from sparta.models.folders.sparse_folder import Network, read_sparse_folder
from sparta.models.prune import SparseRows
from sparta.models.quantize import QueryQuantizer
from sparta.models.query_encoder import QueryTokenizer, is_blank
from sparta.models.resolve import find_folder
from sparta.models.stored_model import language_model
from sparta.neural.batches import length_sorted_batches
from sparta.neural.inputs import EncoderInput, special_frame
from sparta.runtime.fallback import first_readable
from sparta.runtime.first_in_numpy import Encode, FirstInNumpy, gelu, normalized
from sparta.runtime.weights import Floats

logger = logging.getLogger(__name__)
NETWORK_BITS = 8
"""The bits of a query weight. Sums of 50 terms stay far below 2^24, up to which they are exact."""
_WORDS_OF_A_QUESTION = 10
_AT_ONCE = 256
"""The number of queries that are encoded at once: the weights of the whole vocabulary take 31 MB."""
_BATCH = 16
_KEPT = 256
"""The number of queries whose terms are kept: a search asks for them again to mark words and to explain."""


class QueryNetwork:
    """The network that encodes queries.

    `longest_query` is the number of wordpieces of a query that the network reads.

    :param encode: computes the weights of all terms, `(n, vocabulary)`
    """

    def __init__(self, tokenizer: Tokenizer, config: SpartaConfig, encode: Encode) -> None:
        self._tokenizer, self._encode = tokenizer, encode
        self.longest_query = config.layout.max_length - 2
        numbers = set(tokenizer.get_vocab().values())
        self._size = max(numbers) + 1
        self._gaps = [i for i in range(self._size) if i not in numbers]

    def weights(self, texts: Sequence[str]) -> Floats:
        """Return the weight of each term of the vocabulary for each text, `(n, vocabulary) float32`.

        A term embedding without a wordpiece, as in a padded model, has weight 0. A text longer than the
        network's input is cut, with a warning.
        """
        weights, longest = self._read(texts)
        if longest > self.longest_query:
            logger.warning(
                "a query has %s wordpieces; the model reads the first %s of them", longest, self.longest_query
            )
        return weights

    def _read(self, texts: Sequence[str]) -> tuple[Floats, int]:
        """Return the weights of texts, cut if they are too long, and the wordpieces of the longest text."""
        first, last = special_frame(self._tokenizer)
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        frames = [[first, *encoding.ids[: self.longest_query], last] for encoding in encodings]
        weights = self._encode(texts, frames)
        weights[:, self._size :] = 0
        weights[:, self._gaps] = 0
        return weights, max((len(encoding.ids) for encoding in encodings), default=0)

    def fitted_grid(self, lines: Sequence[str]) -> QueryQuantizer:
        """Return a grid whose maximum is slightly above the largest weight of the lines' beginnings.

        The lines are no queries of a user, so there is no warning that one is cut.
        """
        questions = [" ".join(line.split()[:_WORDS_OF_A_QUESTION]) for line in lines]
        highest = max(float(self._read(part)[0].max()) for part in batched(questions, _AT_ONCE))
        return QueryQuantizer(float(f"{highest * 1.1:.3g}") or 1.0, NETWORK_BITS)


def open_query_network(folder: Path) -> QueryNetwork:
    """Open the network of a model's query side.

    A BERT or DistilBERT with its weights in model.safetensors needs no torch.

    :raises ModelError: the model cannot be read, or has no network for queries.
    """
    read = read_sparse_folder(folder)
    network = read.query_network
    if network is None:
        raise ModelError("the model has no network for queries", where=str(folder))
    encode = first_readable(
        network.folder, lambda: _without_torch(network), lambda: _by_torch(network, read.tokenizer)
    )
    return QueryNetwork(read.tokenizer, network.config, encode)


def _without_torch(network: Network) -> Encode:
    """Return a function that encodes the first queries in NumPy, and later queries in OpenVINO.

    :raises ValueError: the encoder is neither a BERT nor a DistilBERT.
    """
    weights = language_model(network.folder, keeps_stored=False)
    terms, width = weights.terms.floats(), weights.encoder.width
    n_terms = len(terms)  # `pool` is released, with the weights that it holds

    def pool(states: Floats) -> Floats:
        flat_states = states.reshape(-1, width)
        if weights.transform is not None:
            linear, norm = weights.transform
            flat_states = normalized(gelu(linear(flat_states)), norm, weights.encoder.epsilon)
        best: Floats = (flat_states @ terms.T).reshape(*states.shape[:2], -1).max(1)
        best += weights.bias
        np.maximum(best, 0, out=best)
        for _ in range(network.config.log_count):
            np.log1p(best, out=best)
        return best

    def in_openvino() -> Encode:
        """Open the network in OpenVINO. It computes in float32, like the network of dense queries."""
        backend = OpenVinoBackend(
            language_model(network.folder), network.config, np.zeros(n_terms, np.bool_), None, "fp32"
        )
        return _by_backend(backend, n_terms)

    return FirstInNumpy(weights.encoder, pool, n_terms, in_openvino, network.folder)


def _by_torch(network: Network, tokenizer: Tokenizer) -> Encode:
    from sparta.models.folders.foreign import load_language_model

    model = load_language_model(network, tokenizer)
    return _by_backend(model.backend("fp32"), model.n_terms)


def _by_backend(backend: Backend, n_terms: int) -> Encode:
    """Return a function that encodes queries with the network of passages."""

    def encode(_texts: Sequence[str], ids: Sequence[Sequence[int]]) -> Floats:
        inputs = [EncoderInput(list(row), [0] * len(row), 1, len(row) - 1) for row in ids]
        lengths = [backend.padded_length(len(row)) for row in ids]
        batches = list(length_sorted_batches(lengths, backend.token_budget, _BATCH))
        weights = np.zeros((len(inputs), n_terms), np.float32)

        def encode_batch(batch: npt.NDArray[np.int64]) -> SparseRows:
            return backend.encode([inputs[i] for i in batch], None)

        with closing(backend.each(encode_batch, list(map(np.array, batches)))) as encoded:
            for batch, rows in zip(batches, encoded, strict=True):
                row_numbers = np.repeat(batch, np.diff(rows.indptr))
                weights[row_numbers, rows.term_ids] = rows.weights
        return weights

    return encode


_opening = threading.Lock()


def query_network(name: str, sha256: str) -> QueryNetwork:
    """Return the network of a model, which all snapshots and indexes of this process share.

    :raises IndexStateError: the model was moved or has changed.
    """
    with _opening:  # threads that need it at the same time open it once
        return _network_of(name, sha256)


@lru_cache(4)
def _network_of(name: str, sha256: str) -> QueryNetwork:
    try:
        return open_query_network(find_folder(name, sha256))
    except ModelError as error:
        raise IndexStateError(
            f"queries of this index need its model: {error.message}",
            where=name,
            remedy=remedy(
                "put the unchanged model there or into the working folder, or index again with {} and {}",
                Option("model"),
                Option("overwrite"),
            ),
        ) from error


class NetworkQueryTokenizer(QueryTokenizer):
    """Converts queries to bags of terms by a model's network: the integer weight of each term.

    The network is opened at the first query.

    :param name: the model's folder or name
    :param sha256: the hash of the model's files
    :param grid: the grid of the weights
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        name: str,
        sha256: str,
        grid: QueryQuantizer,
        language: Language | None = None,
    ) -> None:
        super().__init__(tokenizer, None, grid.step, language)
        self._name, self._sha256, self._grid = name, sha256, grid
        self._bags: OrderedDict[str, dict[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def open_network(self) -> None:
        """Open the network now, not at the first query.

        :raises IndexStateError: the model was moved or has changed.
        """
        query_network(self._name, self._sha256)

    def bag(self, text: str) -> dict[int, int]:
        """Return the weight of each term by term id; a blank text has no terms."""
        return self.bags([text])[0]

    def bags(self, texts: Sequence[str]) -> list[dict[int, int]]:
        """Return the `bag` of each text, from one run of the network."""
        with self._lock:
            bags = {text: self._bags[text] for text in texts if text in self._bags}
        missing = [text for text in dict.fromkeys(texts) if text not in bags]
        for some_texts in batched(missing, _AT_ONCE):
            bags |= dict(zip(some_texts, self._weighted(some_texts), strict=True))
        with self._lock:
            self._bags |= {text: bags[text] for text in missing[-_KEPT:]}
            while len(self._bags) > _KEPT:
                self._bags.popitem(last=False)
        return [bags[text] for text in texts]

    def _weighted(self, texts: Sequence[str]) -> list[dict[int, int]]:
        folded = ["" if is_blank(text) else self.language.fold(text) for text in texts]
        bags: list[dict[int, int]] = [{} for _ in texts]
        numbers = [number for number, text in enumerate(folded) if text]
        if not numbers:
            return bags
        weights = query_network(self._name, self._sha256).weights([folded[i] for i in numbers])
        integers = self._grid.integers(weights)
        for number, row in zip(numbers, integers, strict=True):
            terms = np.flatnonzero(row)
            bags[number] = dict(zip(terms.tolist(), row[terms].tolist(), strict=True))
        return bags
