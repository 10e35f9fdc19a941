"""The models: a passage becomes a weight for every word of the vocabulary (SPARTA, §3.2, eq. 2 to 6)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm

from sparta.base.errors import InputError, ModelError
from sparta.base.files import atomic_write
from sparta.base.records import Passage
from sparta.inputs import EncoderInput, InputLayout
from sparta.neural.checkpoint import from_pretrained, load_state, read_json, save_state
from sparta.neural.encoding import length_sorted_batches, pick_dtype, with_halving
from sparta.prune import SparseRows, prune
from sparta.quantize import Quantizer
from sparta.tokenize import QuerySide, QueryTokenizer, load_tokenizer

CONFIG_VERSION = 1
TERM_CHUNK = 4096
VECTOR = 16
DEFAULT_TOKEN_BUDGET = 4096
_WITH_POOLER = ("albert", "bert", "camembert", "mpnet", "roberta", "xlm-roberta")
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, slots=True)
class Lexical:
    """How much a term counts because it stands in the answer itself: BM25's saturation of its occurrences.

    `mean_length` is that of the answers in wordpieces, of the training's texts: the same in every index.
    """

    mean_length: float
    k1: float = 0.9
    b: float = 0.4

    def saturated(self, occurrences: int, length: int) -> float:
        """Between 0 and 1: occurrences in an answer of so many wordpieces."""
        return occurrences / (occurrences + self.k1 * (1 - self.b + self.b * length / self.mean_length))


@dataclass(frozen=True, slots=True)
class SpartaConfig:
    """The `sparta` object of a model's config.json.

    `pool_special` says whether [CLS] and [SEP] take part in the maximum of eq. 4; `log_count` how often
    log(1+x) is applied (once in eq. 6); `lexical` how occurrences are added to eq. 6, if they are (decision
    0012); `context_share` which part of an answer's weights are those of its whole context (decision 0014).
    """

    layout: InputLayout = field(default_factory=InputLayout)
    tied: bool = False
    pool_special: bool = False
    log_count: int = 1
    lexical: Lexical | None = None
    context_share: float = 0.0
    quantizer: Quantizer | None = None
    format_version: int = CONFIG_VERSION

    def __post_init__(self) -> None:
        if self.pool_special and self.layout.share_context:
            raise ModelError(
                "expected pool_special or share_context, found both: [CLS] stands for no single answer",
                remedy="correct the sparta object in the model's config.json",
            )
        if not 0 <= self.context_share < 1 or (self.context_share and not self.layout.share_context):
            raise ModelError(
                f"expected context_share in [0, 1), and 0 without share_context, found {self.context_share}",
                remedy="correct the sparta object in the model's config.json",
            )

    def as_dict(self) -> dict[str, Any]:
        """For config.json."""
        return asdict(self)

    @staticmethod
    def from_dict(value: dict[str, Any], where: str) -> SpartaConfig:
        """From config.json; a newer version is refused."""
        if not isinstance(value, dict):
            raise ModelError(f"expected sparta to be an object, found {type(value).__name__}", where=where)
        version = value.get("format_version")
        if not isinstance(version, int) or version > CONFIG_VERSION:
            raise ModelError(
                f"expected a model of format {CONFIG_VERSION} or older, found {version}",
                where=where,
                remedy="upgrade sparta, or train the model again with this version",
            )
        try:
            quantizer, lexical = value.get("quantizer"), value.get("lexical")
            return SpartaConfig(
                **{
                    **value,
                    "layout": InputLayout(**value["layout"]),
                    "lexical": Lexical(**lexical) if lexical else None,
                    "quantizer": Quantizer(**quantizer) if quantizer else None,
                }
            )
        except (KeyError, TypeError, InputError) as error:
            raise ModelError(f"the sparta object is not as expected: {error}", where=where) from error


class SparseEncoder(nn.Module):
    """What all document encoders share: hidden states times a term matrix, maximum, ReLU, log.

    A subclass says where hidden states, term matrix `(vocabulary, hidden)` and bias (a scalar or one a term)
    come from. `query_weights (vocabulary,) float32` is None when every query token counts 1, each time it
    occurs.
    """

    def __init__(self, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.config = config
        self.query_weights: npt.NDArray[np.float32] | None = None
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

    def lexical_gains(self) -> torch.Tensor | None:
        """`(vocabulary,)`, 0 or more: what an occurrence of each term is worth; None: nothing is added."""
        return None

    def excluded_terms(self) -> torch.Tensor:
        """`(vocabulary,) bool`: entries that get no impacts: special and unused ones."""
        excluded = torch.zeros(self.term_matrix().shape[0], dtype=torch.bool)
        special = {i for i, t in self.tokenizer.get_added_tokens_decoder().items() if t.special}
        unused = {i for t, i in self.tokenizer.get_vocab().items() if _UNUSED.fullmatch(t)}
        ids = [i for i in special | unused if i < len(excluded)]
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
        single = isinstance(inputs, str | Passage)
        texts = [inputs] if isinstance(inputs, str | Passage) else list(inputs)
        passages = [t if isinstance(t, Passage) else Passage(str(i), t) for i, t in enumerate(texts)]
        if device:
            self.to(device)
        encoder = DocumentEncoder(self, dtype=dtype, max_batch=batch_size, top_k=max_active_dims)
        with tqdm(total=len(passages), unit="passage", disable=not show_progress_bar) as bar:
            rows, _ = encoder.encode(passages, bar.update)
        matrix = scipy.sparse.csr_matrix(
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
        """Questions to `(n, vocabulary) float32`: how much each term counts.

        With `max_active_dims` only the terms that count most are kept. The other options are those of
        `encode_document`, so that both can be called alike; a lookup has no use for them.
        """
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        tokenizer = self.query_tokenizer()
        bags = [tokenizer.bag(text) for text in texts]
        if max_active_dims is not None:
            bags = [dict(sorted(bag.items(), key=lambda t: (-t[1], t[0]))[:max_active_dims]) for bag in bags]
        indptr = np.cumsum([0, *(len(bag) for bag in bags)])
        ids = np.array([i for bag in bags for i in bag], dtype=np.int32)
        weights = np.array([w for bag in bags for w in bag.values()], dtype=np.float32)
        return scipy.sparse.csr_matrix((weights, ids, indptr), shape=(len(bags), self.term_matrix().shape[0]))

    def query_tokenizer(self) -> QueryTokenizer:
        """Questions to bags of terms."""
        return QueryTokenizer(self.tokenizer, self.query_weights)

    def query_side(self) -> QuerySide:
        """Return what of this model travels in an index."""
        if self.config.quantizer is None:
            raise ModelError("the model has no quantizer", remedy="load it with sparta.load.load_model")
        return QuerySide(self.tokenizer, self.query_weights, self.name, self.identity, self.config.quantizer)

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
    answer.
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: SpartaConfig) -> None:
        super().__init__(tokenizer, config)
        self.encoder = encoder
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.term_embeddings = None if config.tied else nn.Parameter(_words(encoder).detach().clone())
        self.gains = nn.Parameter(torch.zeros(len(self.term_matrix()))) if config.lexical else None
        self._encoder_config: Any = encoder.config
        self._segments = getattr(encoder.config, "type_vocab_size", 0) >= 2
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

    def add_lexical(self, lexical: Lexical, gains: torch.Tensor) -> None:
        """Let occurrences count: `gains (vocabulary,)` is what one of each term is worth."""
        self.config = replace(self.config, lexical=lexical)
        self.gains = nn.Parameter(gains.float())

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; with `int8`, in 8 bits with row scales."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        encoder = {k: v for k, v in self._encoder_config.to_dict().items() if k != "_name_or_path"}
        config = {
            **encoder,
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


def load_encoder(name: str | Path) -> nn.Module:
    """Return a pretrained encoder (folder or hub id) in float32, without a pooler."""
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(str(name), trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"expected a transformers model, found no usable config.json: {error}",
            where=str(name),
            remedy="give the folder or the hub id of an encoder such as BERT",
        ) from error
    return from_pretrained(AutoModel, name, **_without_pooler(config))


def _without_pooler(config: Any) -> dict[str, bool]:
    return {"add_pooling_layer": False} if config.model_type in _WITH_POOLER else {}


def blank_encoder(config: dict[str, Any], where: str) -> nn.Module:
    """Return an encoder of this configuration in float32, whose weights are still to be filled."""
    from transformers import AutoConfig, AutoModel

    try:
        known = AutoConfig.for_model(**config)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(f"expected the configuration of an encoder: {error}", where=where) from error
    arguments = {"dtype": torch.float32, **_without_pooler(known)}
    with torch.device("meta"):
        encoder: nn.Module = AutoModel.from_config(known, **arguments)
    buffers = {name.rpartition(".")[2] for name, _ in encoder.named_buffers()}
    if not buffers <= {"position_ids", "token_type_ids"}:  # computed ones, such as rotary tables
        return AutoModel.from_config(known, **arguments)
    encoder = encoder.to_empty(device="cpu")
    for name, buffer in encoder.named_buffers():
        counts = name.endswith("position_ids")
        buffer.copy_(torch.arange(buffer.shape[-1]).expand_as(buffer) if counts else torch.zeros_like(buffer))
    return encoder


def shared_inputs(inputs: Sequence[EncoderInput]) -> list[int]:
    """Which row of the encoder each input is read from: neighbours of the same tokens share one."""
    rows = [0] * len(inputs)
    for i in range(1, len(inputs)):
        rows[i] = rows[i - 1] + (not inputs[i].shares_tokens(inputs[i - 1]))
    return rows


def pad_inputs(inputs: Sequence[EncoderInput], length: int | None = None) -> tuple[torch.Tensor, ...]:
    """Return padded `(n, length)` ids, mask and segments.

    `length` is that of the longest input unless it is given.
    """
    length = length or max(len(i.ids) for i in inputs)
    ids = torch.zeros(len(inputs), length, dtype=torch.long)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, item in enumerate(inputs):
        n = len(item.ids)
        ids[row, :n] = torch.tensor(item.ids)
        segments[row, :n] = torch.tensor(item.segments)
        mask[row, :n] = 1
    return ids, mask, segments


def pooled_positions(
    inputs: Sequence[EncoderInput], rows: Sequence[int], length: int, *, pool_special: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the flattened `(n_rows * length)` positions take part in each input's maximum.

    Returns `(n, longest)` positions, padded by repeating one that takes part, so that the maximum needs no
    mask, and `(n,) bool`: whether any does.
    """
    found = [range(len(i.ids)) if pool_special else i.own() for i in inputs]
    longest = max(1, *(len(f) for f in found))
    positions = torch.zeros(len(inputs), longest, dtype=torch.long)
    for i, (row, own) in enumerate(zip(rows, found, strict=True)):
        if own:
            positions[i] = own[0] + row * length
            positions[i, : len(own)] = torch.tensor(own) + row * length
    return positions, torch.tensor([bool(f) for f in found])


def surroundings(inputs: Sequence[EncoderInput]) -> tuple[list[EncoderInput], list[int]]:
    """Return the contexts that inputs stand in, each once, and for each input which one it is.

    -1 stands for none: the input is all that is read.
    """
    numbers: dict[tuple[int, ...], int] = {}
    contexts: list[EncoderInput] = []
    index: list[int] = []
    for item in inputs:
        around = item.around()
        if around == item:
            index.append(-1)
            continue
        index.append(numbers.setdefault((*item.ids, item.lead), len(contexts)))
        if index[-1] == len(contexts):
            contexts.append(around)
    return contexts, index


def mixed(own: torch.Tensor, contexts: torch.Tensor, index: Sequence[int], share: float) -> torch.Tensor:
    """Return the weights of answers, of which `share` are those of the context that each stands in.

    `own (n, terms)`, `contexts (n_contexts, terms)`; `index` as `surroundings` gives it.
    """
    if not len(contexts):
        return own
    numbers = torch.tensor(index, device=own.device)
    around = contexts[numbers.clamp_min(0)]
    return torch.where((numbers >= 0)[:, None], own + share * (around - own), own)


def occurrences(
    inputs: Sequence[EncoderInput], lexical: Lexical
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return which terms stand in the title and in the answer of each input, and their saturated counts.

    Three of one length: number of the input, term, count between 0 and 1.
    """
    rows: list[int] = []
    terms: list[int] = []
    counts: list[float] = []
    for row, item in enumerate(inputs):
        own = Counter(item.ids[position] for position in item.own())
        length = own.total()
        rows += [row] * len(own)
        terms += own.keys()
        counts += [lexical.saturated(n, length) for n in own.values()]
    return torch.tensor(rows, dtype=torch.long), torch.tensor(terms, dtype=torch.long), torch.tensor(counts)


@dataclass
class EncodeCounts:
    """What encoding met: passages, and answers too long for one window."""

    passages: int = 0
    windowed: int = 0
    empty: int = 0


class DocumentEncoder:
    """Encodes many passages with one model on one device: batches, vocabulary chunks, top-K on the device."""

    def __init__(
        self,
        model: SparseEncoder,
        *,
        dtype: str = "auto",
        token_budget: int = DEFAULT_TOKEN_BUDGET,
        max_batch: int = 256,
        top_k: int | None = None,
    ) -> None:
        self.model = model.eval()
        self.device = model.device
        self.dtype = pick_dtype(dtype, self.device)
        self.token_budget = token_budget
        self.max_batch = max_batch
        self.top_k = top_k
        self._allowed = ~model.excluded_terms().to(self.device)
        self._bias = model.term_bias().detach().float()
        self._terms = model.term_matrix().detach().to(self.dtype)
        gains = model.lexical_gains()
        self._gains = None if gains is None else gains.detach()
        self._scale = float(getattr(model, "scale", torch.tensor(1.0)).detach())

    def encode(
        self, passages: Sequence[Passage], advance: Callable[[int], object] | None = None
    ) -> tuple[SparseRows, EncodeCounts]:
        """One row a passage, in order, and what was met; `advance(n)` is called as texts are done."""
        windows: list[EncoderInput] = []
        per_passage = np.zeros(len(passages), dtype=np.int64)
        for i, passage in enumerate(passages):
            cut = self.model.config.layout.windows(passage, self.model.tokenizer)
            windows += cut
            per_passage[i] = len(cut)
        owner = np.repeat(np.arange(len(passages)), per_passage)
        rows = self._encode_windows(windows, owner, per_passage, advance)
        merged = _merge_windows(rows, owner, len(passages))
        counts = EncodeCounts(
            passages=len(passages),
            windowed=int((per_passage > 1).sum()),
            empty=int((np.diff(merged.indptr) == 0).sum()),
        )
        return prune(merged, top_k=self.top_k), counts

    def _encode_windows(
        self,
        windows: list[EncoderInput],
        owner: npt.NDArray[np.int64],
        per_passage: npt.NDArray[np.int64],
        advance: Callable[[int], object] | None,
    ) -> SparseRows:
        """One row a window; a window that will be merged with others keeps all its terms.

        Neighbours of the same tokens are encoded together. Passages, not windows, are reported to `advance`:
        each with its first window.
        """
        first = np.diff(owner, prepend=-1) > 0
        order: list[int] = []
        parts: list[SparseRows] = []
        ends = np.cumsum(np.bincount(shared_inputs(windows))) if windows else np.zeros(0, dtype=np.int64)
        groups = np.split(np.arange(len(windows)), ends[:-1])
        lengths = [self._padded(len(windows[group[0]].ids)) for group in groups] if windows else []
        for chosen in length_sorted_batches(lengths, self.token_budget, self.max_batch):
            batch = np.concatenate([groups[i] for i in chosen])
            whole = bool((per_passage[owner[batch]] > 1).any())
            encode = partial(self._encode_batch, whole=whole)
            parts += with_halving(encode, [windows[i] for i in batch])
            order += batch.tolist()
            if advance:
                advance(int(first[batch].sum()))
        everything = SparseRows.concatenate(parts)
        return everything.take(np.argsort(np.array(order, dtype=np.int64), kind="stable"))

    def _padded(self, length: int) -> int:
        """Return the length that a text is padded to when it is the longest of its batch.

        In 16 bits, attention over a whole number of vectors gives the same bits whatever the padding; over
        any other length, its sums are rounded in another order. The longest window stays the limit.
        """
        if self.dtype == torch.float32:
            return length
        return max(length, min(-(-length // VECTOR) * VECTOR, self.model.config.layout.max_length))

    @torch.inference_mode()
    def _encode_batch(self, inputs: Sequence[EncoderInput], whole: bool) -> list[SparseRows]:
        """One row an input, in order; inputs are pooled a few at a time, those of like length together."""
        rows = shared_inputs(inputs)
        distinct = [item for i, item in enumerate(inputs) if i == 0 or rows[i] != rows[i - 1]]
        length = self._padded(max(len(i.ids) for i in distinct))
        ids, mask, segments = (t.to(self.device) for t in pad_inputs(distinct, length))
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            hidden = self.model.hidden_states(ids, mask, segments).to(self.dtype)
        flat = hidden.flatten(0, 1)
        share = self.model.config.context_share
        contexts, index = surroundings(inputs) if share else ([], [-1] * len(inputs))
        row_of = dict(zip(index, rows, strict=True))
        around = self._weights(flat, contexts, [row_of[i] for i in range(len(contexts))], length)
        sizes = [item.lead + item.end - item.start for item in inputs]
        parts: list[SparseRows] = []
        order: list[int] = []
        for batch in length_sorted_batches(sizes, max(self.token_budget, length), len(inputs)):
            own = self._weights(flat, [inputs[i] for i in batch], [rows[i] for i in batch], length)
            weights = mixed(own, around, [index[i] for i in batch], share)
            parts.append(self._sparse(weights, None if whole else self.top_k))
            order += batch
        return [SparseRows.concatenate(parts).take(np.argsort(order, kind="stable"))]

    def _weights(
        self, flat: torch.Tensor, inputs: Sequence[EncoderInput], rows: Sequence[int], length: int
    ) -> torch.Tensor:
        """Weights of every term, `(n, vocabulary) float32`: eq. 4 to 6, and what occurrences add.

        `flat (n_rows * length, width)` are the states that inputs are read from, `rows` which of them.
        """
        if not inputs:
            return torch.zeros(0, len(self._terms), device=self.device)
        positions, any_at_all = pooled_positions(
            inputs, rows, length, pool_special=self.model.config.pool_special
        )
        lexical = self._lexical(inputs)
        return self._pool(flat[positions.to(self.device)], any_at_all.to(self.device), lexical)

    def _lexical(self, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, ...] | None:
        """Inputs, terms, and what is added for them."""
        lexical = self.model.config.lexical
        if lexical is None or self._gains is None:
            return None
        rows, terms, counts = (t.to(self.device) for t in occurrences(inputs, lexical))
        return rows, terms, self._gains[terms] * counts

    def _pool(
        self, pooled: torch.Tensor, any_at_all: torch.Tensor, lexical: tuple[torch.Tensor, ...] | None
    ) -> torch.Tensor:
        """Eq. 4 to 6 for every term, from `(n, longest, width)` states: `(n, vocabulary) float32`.

        What is `lexical` is added to it: inputs, terms, and how much. Where no position takes part, there are
        no terms. Bias, ReLU and log are monotone and come after the maximum.
        """
        n, longest, width = pooled.shape
        flat = pooled.reshape(n * longest, width)
        best = torch.empty(n, self._terms.shape[0], device=self.device)
        for start in range(0, self._terms.shape[0], TERM_CHUNK):
            chunk = self._terms[start : start + TERM_CHUNK]
            logits = self._product(flat, chunk).view(n, longest, -1)
            best[:, start : start + TERM_CHUNK] = logits.amax(dim=1)
        weights = torch.relu(best * self._scale + self._bias)
        for _ in range(self.model.config.log_count):
            weights = torch.log1p(weights)
        if lexical is not None:
            rows, terms, added = lexical
            weights[rows, terms] += added
        kept = self._allowed & any_at_all[:, None]
        return torch.where(kept, weights, torch.zeros_like(weights))

    def _product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left @ right.T`, in float32 where the device can give it for 16-bit factors."""
        if self.device.type == "cuda" and self.dtype != torch.float32:
            return torch.mm(left, right.T, out_dtype=torch.float32)
        return left @ right.T

    @staticmethod
    def _sparse(weights: torch.Tensor, top_k: int | None) -> SparseRows:
        """Return the non-zero entries; with `top_k`, chosen on the device so that only they leave it."""
        if top_k is not None and top_k < weights.shape[1]:
            least = weights.topk(top_k, dim=1).values[:, -1:]
            weights = torch.where(weights >= least, weights, torch.zeros_like(weights))
        row, column = torch.nonzero(weights, as_tuple=True)
        values = weights[row, column].cpu().numpy().astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelError(
                "expected finite weights, found infinite ones: the arithmetic overflowed",
                remedy="encode with --dtype bf16 or --dtype fp32",
            )
        lengths = torch.bincount(row, minlength=len(weights)).cpu().numpy()
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return SparseRows(indptr, column.cpu().numpy().astype(np.int32), values)


def _merge_windows(rows: SparseRows, owner: npt.NDArray[np.int64], n_passages: int) -> SparseRows:
    """Windows of one passage become one row: the maximum of each term."""
    if len(owner) == n_passages:
        return rows
    passage = np.repeat(owner, np.diff(rows.indptr))
    order = np.lexsort((-rows.weights, rows.term_ids, passage))
    passage, terms, weights = passage[order], rows.term_ids[order], rows.weights[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (passage[1:] != passage[:-1]) | (terms[1:] != terms[:-1])
    lengths = np.bincount(passage[first], minlength=n_passages)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SparseRows(indptr, terms[first], weights[first])


def fit_quantizer(model: SparseEncoder, passages: Iterable[Passage], bits: int = 8) -> Quantizer:
    """Return the model's scale: a little above the largest weight that these passages have."""
    rows, _ = DocumentEncoder(model, dtype="fp32").encode(list(passages))
    if not rows.weights.size:
        raise ModelError(
            "expected positive weights for the calibration texts, found none: the model writes no terms",
            remedy="train the model, or check that the folder holds a sparse encoder",
        )
    return Quantizer(float(f"{rows.weights.max() * 1.1:.3g}"), bits)  # few digits: the same on every machine


def with_quantizer(model: SparseEncoder, quantizer: Quantizer) -> SparseEncoder:
    """Return the same model; its configuration carries this quantizer."""
    model.config = replace(model.config, quantizer=quantizer)
    return model
