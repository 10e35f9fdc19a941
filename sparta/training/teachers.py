"""Teachers: other rankers whose scores a model in training learns to give (listwise distillation)."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.nn import functional

from sparta.base.records import Passage
from sparta.models.query_encoder import QueryTokenizer, load_tokenizer
from sparta.models.resolve import sparta_folder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import load_encoder
from sparta.neural.encoding import arithmetic, length_sorted_batches
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs
from sparta.training.negatives import Bm25, bag_matrix
from sparta.training.paragraphs import ParagraphSet, name_and_weight

BM25 = "bm25"
QUERY_PREFIX = "Represent this sentence for searching relevant passages: "
COSINE_SCALE = 20.0
MOST_CACHED = 500_000
_LONGEST = 256
_TERMS = 500
_TOKEN_BUDGET = 4096


class Teacher(Protocol):
    """Scores candidates for questions; `reads_context` says whether it reads a sentence in its context."""

    reads_context: bool

    @property
    def name(self) -> str:
        """What it is called in the record of a training."""
        ...

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`."""
        ...


TeacherOpener = Callable[[str, str | None], Teacher | None]
"""From a name and a device to the teacher of that name; None when it is not one of this kind."""


@dataclass
class Mixture:
    """The weighted sum of several teachers' scores, divided by a temperature.

    To the scores of a teacher that reads sentences without their contexts, those of the contexts are added:
    they find the sentence that answers a question whose words stand in the sentence before it.
    """

    teachers: Sequence[tuple[Teacher, float]]
    temperature: float = 2.0
    reads_context = True

    @property
    def name(self) -> str:
        """All teachers with their weights."""
        return " + ".join(f"{weight:g} {one.name}" for one, weight in self.teachers)

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`."""
        parts = [weight * _with_contexts(one, questions, candidates) for one, weight in self.teachers]
        return torch.stack(parts).sum(0) / self.temperature


def weight_hashes(teacher: Teacher | None) -> list[str]:
    """Return a hash of each teacher's weights, whatever its name; "" for BM25, which has none."""
    if teacher is None:
        return []
    if isinstance(teacher, Mixture):
        return [found for one, _ in teacher.teachers for found in weight_hashes(one)]
    digest = hashlib.sha256()
    modules = [held for held in vars(teacher).values() if isinstance(held, nn.Module)]
    for name, tensor in (item for module in modules for item in module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return [digest.hexdigest()[:16] if modules else ""]


def _with_contexts(teacher: Teacher, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
    """Scores of the candidates plus, unless the teacher reads them itself, those of their contexts."""
    if teacher.reads_context:
        return teacher.scores(questions, candidates)
    keys = [(c.title, c.context) for c in candidates]
    contexts = list(dict.fromkeys(key for key in keys if key[1]))
    column = {key: i for i, key in enumerate(contexts)}
    texts = [*candidates, *(Passage("", context, title) for title, context in contexts)]
    scores = teacher.scores(questions, texts)
    of_candidates, of_contexts = scores[:, : len(candidates)], scores[:, len(candidates) :]
    in_context = [i for i, key in enumerate(keys) if key in column]
    of_candidates[:, in_context] += of_contexts[:, [column[keys[i]] for i in in_context]]
    return of_candidates


class VectorCache[K, V]:
    """Vectors by a key of their texts, so that texts that come again are not encoded again."""

    def __init__(self) -> None:
        self._vectors: dict[K, V] = {}

    def get[T](
        self, keys: Sequence[K], texts: Sequence[T], encode: Callable[[list[T]], Iterable[V]]
    ) -> list[V]:
        """Return the vector of each text; `encode` is called with those that are new."""
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if new:
            self._vectors.update(zip(new, encode(list(new.values())), strict=True))
        found = [self._vectors[key] for key in keys]
        for key in list(itertools.islice(self._vectors, max(0, len(self._vectors) - MOST_CACHED))):
            del self._vectors[key]  # the oldest
        return found


class LexicalTeacher:
    """BM25 over wordpieces, with the document frequencies and the mean length of the training texts."""

    name = BM25
    reads_context = False

    def __init__(self, sets: Sequence[ParagraphSet], tokenizer: QueryTokenizer) -> None:
        self.bm25 = Bm25.of_sets(sets, tokenizer)
        self.tokenizer = tokenizer

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`."""
        documents = self.bm25.weigh([f"{c.title} {c.text}" for c in candidates])
        found = bag_matrix(questions, self.tokenizer) @ documents.T
        return torch.from_numpy(found.toarray().astype(np.float32))


class DenseTeacher:
    """Cosine of a bi-encoder from a folder or a hub id, times 20; vectors of texts that come again are kept.

    Cosines of such models lie close together: times 20 (a temperature of 0.05) they prefer some candidates
    to others. Pooling is that of sentence-transformers' layout (`1_Pooling/config.json`), else the state of
    [CLS], and questions then get bge's prefix.
    """

    reads_context = False

    def __init__(self, name: str, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.encoder = load_encoder(name).to(device or "cpu")
        self.tokenizer = load_tokenizer(name)
        self.tokenizer.enable_truncation(_LONGEST)
        self.mean = _pools_by_mean(name)
        self.prefix = "" if self.mean else QUERY_PREFIX
        self._cache: VectorCache[str, torch.Tensor] = VectorCache()

    @property
    def device(self) -> torch.device:
        """Where the encoder is."""
        return next(self.encoder.parameters()).device

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`, between -20 and 20."""
        queries = self.embed([self.prefix + q for q in questions])
        return COSINE_SCALE * queries @ self.embed([f"{c.title} {c.text}".strip() for c in candidates]).T

    def embed(self, texts: Sequence[str]) -> torch.Tensor:
        """`(n, width) float32` of length 1."""
        return torch.stack(self._cache.get(texts, texts, self._encode)).float()

    def _encode(self, texts: Sequence[str]) -> list[torch.Tensor]:
        lengths = [len(e.ids) for e in self.tokenizer.encode_batch(list(texts))]
        vectors = [torch.empty(0)] * len(texts)
        for batch in length_sorted_batches(lengths, _TOKEN_BUDGET, 256):
            for i, vector in zip(batch, self._encode_batch([texts[i] for i in batch]), strict=True):
                vectors[i] = vector.half()
        return vectors

    @torch.no_grad()
    def _encode_batch(self, texts: Sequence[str]) -> torch.Tensor:
        encoded = self.tokenizer.encode_batch(list(texts))
        inputs = [EncoderInput(e.ids, e.type_ids, 0, len(e.ids)) for e in encoded]
        ids, mask, _ = (part.to(self.device) for part in pad_inputs(inputs))
        with arithmetic(self.device):
            states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        shown = mask[:, :, None].float()
        pooled = (states * shown).sum(1) / shown.sum(1) if self.mean else states[:, 0]
        return functional.normalize(pooled, dim=1).cpu()


class SpartaTeacher:
    """A SPARTA model, by the strongest terms of each candidate; vectors of those that come again are kept."""

    reads_context = True

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.model = SpartaModel.load(folder).to(device or "cpu")
        self._cache: VectorCache[tuple[str, str, str, int], scipy.sparse.csr_matrix] = VectorCache()

    @torch.no_grad()
    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`: eq. 9 over the strongest terms, in units of term weight."""
        keys = [(c.title, c.context, c.text, c.start) for c in candidates]
        columns = scipy.sparse.vstack(self._cache.get(keys, candidates, self._encode), format="csr").T
        found = self.model.encode_query(list(questions)) @ columns
        return torch.from_numpy(found.toarray().astype(np.float32))

    def _encode(self, candidates: list[Passage]) -> list[scipy.sparse.csr_matrix]:
        rows = self.model.encode_document(candidates, max_active_dims=_TERMS)
        return [rows[i] for i in range(len(candidates))]


def _pools_by_mean(name: str) -> bool:
    from transformers.utils.hub import cached_file

    try:
        path = cached_file(name, "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False)
        config = json.loads(Path(path).read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError):
        return False
    return bool(isinstance(config, dict) and config.get("pooling_mode_mean_tokens"))


def open_teacher(
    names: Sequence[str],
    sets: Sequence[ParagraphSet],
    tokenizer: QueryTokenizer,
    device: str | None = None,
    openers: Sequence[TeacherOpener] = (),
) -> Mixture | None:
    """Return the mixture that `bm25[=WEIGHT]` and `FOLDER|ID[=WEIGHT]` name; None when nothing is named.

    What none of the `openers` knows is a SPARTA model, or else an encoder whose vectors are compared by their
    cosine.
    """

    def opened(name: str) -> Teacher:
        if name == BM25:
            return LexicalTeacher(sets, tokenizer)
        if known := next((one for opener in openers if (one := opener(name, device))), None):
            return known
        folder = sparta_folder(name)
        return SpartaTeacher(name, folder, device=device) if folder else DenseTeacher(name, device=device)

    given = [name_and_weight(name, "TEACHER") for name in names]
    return Mixture([(opened(name), weight) for name, weight in given]) if given else None
