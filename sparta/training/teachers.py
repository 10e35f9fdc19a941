"""Teachers: rankers whose scores a model learns to reproduce (listwise distillation)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.nn import functional

from sparta.base.errors import ModelError, first_line_of
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.models.folders.kinds import MODULES, module_entries
from sparta.models.folders.pairs import check_kind
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.query_encoder import QueryTokenizer
from sparta.models.registered import local_folder
from sparta.models.resolve import (
    check_hub_variables,
    installed_folder,
    is_failed_download,
    is_shipped,
    model_folder,
    sparta_folder,
)
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import load_encoder, longest_input
from sparta.neural.batches import length_sorted_batches
from sparta.neural.encoding import arithmetic
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs
from sparta.neural.stored import read_settings
from sparta.training.negatives import Bm25Vectorizer, bag_matrix
from sparta.training.paragraphs import ParagraphSet, name_and_weight

BM25 = "bm25"
QUERY_PREFIX = "Represent this sentence for searching relevant passages: "
COSINE_SCALE = 20.0
MOST_CACHED = 500_000
_POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
"""Values of `pooling_mode` by the keys that sentence-transformers wrote before version 6."""
_MAX_LENGTH = 256
_MAX_TERMS = 500
_TOKEN_BUDGET = 4096


class Teacher(Protocol):
    """Scores candidates for questions; `reads_context` tells whether it reads a sentence's context.

    A teacher that does not score a pair returns NaN. The training then leaves the pair out of the divergence.
    """

    reads_context: bool

    @property
    def name(self) -> str:
        """The teacher's name in the record of a training."""
        ...

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scores, `(n_questions, n_candidates) float32`."""
        ...


TeacherOpener = Callable[[str, str | None], Teacher | None]
"""A function from a name and a device to the teacher; it returns None for a name of another kind."""


@dataclass
class Mixture:
    """The weighted sum of several teachers' scores, divided by a temperature.

    If a teacher does not read contexts, the scores of the contexts are added to the scores of their
    sentences. The sum favors a sentence whose previous sentence contains the question's words. A pair that
    one of the teachers does not score is NaN.
    """

    teachers: Sequence[tuple[Teacher, float]]
    temperature: float = 2.0
    reads_context = True

    @property
    def name(self) -> str:
        """All teachers' names with their weights."""
        return " + ".join(f"{weight:g} {teacher.name}" for teacher, weight in self.teachers)

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scores, `(n_questions, n_candidates) float32`."""
        weighted_scores = [
            weight * _with_contexts(teacher, questions, candidates) for teacher, weight in self.teachers
        ]
        return torch.stack(weighted_scores).sum(0) / self.temperature


def weight_hashes(teacher: Teacher | None) -> list[str]:
    """Return a hash of each teacher's weights, independent of its name; empty for BM25.

    A teacher that reads its weights outside torch has the hash of its files in `identity`.
    """
    if teacher is None:
        return []
    if isinstance(teacher, Mixture):
        return [digest for part, _ in teacher.teachers for digest in weight_hashes(part)]
    if identity := getattr(teacher, "identity", ""):
        return [identity[:16]]
    digest = hashlib.sha256()
    modules = [held for held in vars(teacher).values() if isinstance(held, nn.Module)]
    for name, tensor in (item for module in modules for item in module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return [digest.hexdigest()[:16] if modules else ""]


def _with_contexts(teacher: Teacher, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
    """Return the candidates' scores, plus their contexts' scores if the teacher does not read contexts."""
    if teacher.reads_context:
        return teacher.scores(questions, candidates)
    keys = [(candidate.title, candidate.context) for candidate in candidates]
    contexts = list(dict.fromkeys(key for key in keys if key[1]))
    column = {key: i for i, key in enumerate(contexts)}
    texts = [*candidates, *(Passage("", context, title) for title, context in contexts)]
    scores = teacher.scores(questions, texts)
    of_candidates, of_contexts = scores[:, : len(candidates)], scores[:, len(candidates) :]
    in_context = [i for i, key in enumerate(keys) if key in column]
    of_candidates[:, in_context] += of_contexts[:, [column[keys[i]] for i in in_context]]
    return of_candidates


class VectorCache[K, V]:
    """A cache of vectors by text key, so that repeated texts are encoded once."""

    def __init__(self, most: int = MOST_CACHED) -> None:
        self._vectors: dict[K, V] = {}
        self._most = most

    def get[T](
        self, keys: Sequence[K], texts: Sequence[T], encode: Callable[[list[T]], Iterable[V]]
    ) -> list[V]:
        """Return the vector of each text; `encode` is called only with new texts."""
        new_texts = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._vectors}
        if new_texts:
            self._vectors.update(zip(new_texts, encode(list(new_texts.values())), strict=True))
        vectors = [self._vectors[key] for key in keys]
        for key in list(itertools.islice(self._vectors, max(0, len(self._vectors) - self._most))):
            del self._vectors[key]  # drop the oldest vectors
        return vectors


class LexicalTeacher:
    """BM25 over wordpieces, with the document frequencies and the mean length of the training texts."""

    name = BM25
    reads_context = False

    def __init__(self, sets: Sequence[ParagraphSet], tokenizer: QueryTokenizer) -> None:
        self.bm25 = Bm25Vectorizer.of_sets(sets, tokenizer)
        self.tokenizer = tokenizer

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the BM25 scores, `(n_questions, n_candidates) float32`."""
        documents = self.bm25.weigh([candidate.titled_text for candidate in candidates])
        scores = bag_matrix(questions, self.tokenizer) @ documents.T
        return torch.from_numpy(scores.toarray().astype(np.float32))


class DenseTeacher:
    """The cosine of a bi-encoder, times 20, from a folder or a hub id; vectors of repeated texts are cached.

    The cosines of such models lie close together, so they are multiplied by 20 (a temperature of 0.05) to
    separate candidates. A model of sentence-transformers says how it pools states: by their mean or by the
    state of [CLS]. It may also say what texts begin with, and how long they may be. A plain encoder uses
    [CLS]. With [CLS] and no stored prompts, as in bge, questions get bge's prefix.

    :raises ModelError: the model has another pooling or further layers, or its files cannot be read.
    """

    reads_context = False

    def __init__(self, name: str, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.encoder = load_encoder(name).to(device or "cpu")
        self.tokenizer = load_tokenizer(name)
        self.mean = _pooling(name) == "mean"
        prefixes, most = _stored_settings(name)
        self.tokenizer.enable_truncation(longest_input(self.encoder, most))
        self.prefix, self.text_prefix = prefixes or ("" if self.mean else QUERY_PREFIX, "")
        self._cache: VectorCache[str, torch.Tensor] = VectorCache()

    @property
    def device(self) -> torch.device:
        """The device of the encoder."""
        return next(self.encoder.parameters()).device

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scaled cosines, `(n_questions, n_candidates) float32`, between -20 and 20."""
        queries = self.embed([self.prefix + question for question in questions])
        texts = self.embed([self.text_prefix + candidate.titled_text for candidate in candidates])
        return COSINE_SCALE * queries @ texts.T

    def embed(self, texts: Sequence[str]) -> torch.Tensor:
        """Return the vectors of texts, `(n, width) float32`, of length 1."""
        return torch.stack(self._cache.get(texts, texts, self._encode)).float()

    def _encode(self, texts: Sequence[str]) -> list[torch.Tensor]:
        lengths = [len(encoding.ids) for encoding in self.tokenizer.encode_batch(list(texts))]
        vectors = [torch.empty(0)] * len(texts)
        for batch in length_sorted_batches(lengths, _TOKEN_BUDGET, 256):
            for i, vector in zip(batch, self._encode_batch([texts[i] for i in batch]), strict=True):
                vectors[i] = vector.half()
        return vectors

    @torch.no_grad()
    def _encode_batch(self, texts: Sequence[str]) -> torch.Tensor:
        encoded = self.tokenizer.encode_batch(list(texts))
        inputs = [EncoderInput(encoding.ids, encoding.type_ids, 0, len(encoding.ids)) for encoding in encoded]
        ids, mask, _ = (part.to(self.device) for part in pad_inputs(inputs))
        with arithmetic(self.device):
            states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        shown = mask[:, :, None].float()
        pooled = (states * shown).sum(1) / shown.sum(1) if self.mean else states[:, 0]
        return functional.normalize(pooled, dim=1).cpu()


class SpartaTeacher:
    """A SPARTA model that scores by each candidate's strongest terms; vectors are cached by text."""

    reads_context = True

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.model = SpartaModel.load(folder).to(device or "cpu")
        self._cache: VectorCache[tuple[str, str, str, int], scipy.sparse.csr_matrix] = VectorCache()

    @torch.no_grad()
    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scores over the strongest terms, `(n_questions, n_candidates) float32`.

        A score is a sum of weights (SPARTA, eq. 9).
        """
        keys = [
            (candidate.title, candidate.context, candidate.text, candidate.start) for candidate in candidates
        ]
        columns = scipy.sparse.vstack(self._cache.get(keys, candidates, self._encode), format="csr").T
        scores = self.model.encode_query(list(questions)) @ columns
        return torch.from_numpy(scores.toarray().astype(np.float32))

    def _encode(self, candidates: list[Passage]) -> list[scipy.sparse.csr_matrix]:
        rows = self.model.encode_document(candidates, max_active_dims=_MAX_TERMS)
        return [rows[i] for i in range(len(candidates))]


def _file_of(name: str, file: str, *, is_needed: bool = False) -> Path | None:
    """Return a file of a folder or of a model on the hub, or None if the model lacks the file.

    :param is_needed: raise if the file is not in the cache, and there is no way to the hub; else return None
    :raises ModelError: nothing shows whether the model has the file, and `is_needed` is set.
    """
    if Path(name).is_dir():
        return Path(name, file) if Path(name, file).is_file() else None
    try:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        return Path(hf_hub_download(name, file))
    except Exception as error:
        check_hub_variables()
        if not is_failed_download(error):
            raise
        from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

        is_missing = isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
        is_id = not isinstance(error, HFValidationError)
        # The cache returns a path, None, or an object that marks a missing file.
        cached = try_to_load_from_cache(name, file) if is_id and not is_missing else None
        if isinstance(cached, str):
            return Path(cached)
        if is_missing or cached is not None or not is_needed:
            return None
        raise ModelError(
            f"cannot tell how the model encodes texts, because {file} cannot be read: {first_line_of(error)}",
            where=name,
            remedy=remedy("repeat this with a network, or name a complete folder with {}", Option("teacher")),
        ) from error


def _pooling(name: str) -> str:
    """Return how an encoder pools the states of its tokens: `mean` or `cls`.

    :raises ModelError: sentence-transformers would compute other vectors, or a file cannot be read.
    """
    modules = _file_of(name, MODULES, is_needed=True)
    entries = module_entries(modules.parent) if modules else []
    paths: dict[str, str] = {}
    for entry in entries:
        kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
        paths[str(kind).rpartition(".")[2]] = str(path or "")
    if entries and not {"Transformer", "Pooling"} <= paths.keys() <= {"Transformer", "Pooling", "Normalize"}:
        raise _not_a_teacher(name, f"the modules {' + '.join(paths)}")
    file = _file_of(name, f"{paths.get('Pooling', '1_Pooling')}/config.json", is_needed=True)
    if file is None and not entries:
        return "cls"
    config = read_settings(file)
    modes = config.get("pooling_mode") or [
        _POOLING_MODES.get(key, key)
        for key, value in config.items()
        if key.startswith("pooling_mode_") and value
    ]
    modes = [modes] if isinstance(modes, str) else modes
    if modes not in (["mean"], ["cls"]):
        raise _not_a_teacher(name, f"the pooling {', '.join(map(str, modes)) or 'nothing'}")
    return str(modes[0])


def _stored_settings(name: str) -> tuple[tuple[str, str] | None, int]:
    """Return the prefixes of questions and of texts, if a model stores prompts, and its longest input.

    Only a model of sentence-transformers, which has a list of modules, stores them.
    """
    if not _file_of(name, MODULES, is_needed=True):
        return None, _MAX_LENGTH
    settings, limits = (
        read_settings(_file_of(name, file_name, is_needed=True))
        for file_name in ("config_sentence_transformers.json", "sentence_bert_config.json")
    )
    stored_limits = (
        limits.get("max_seq_length"),
        read_settings(_file_of(name, "tokenizer_config.json")).get("model_max_length"),
    )
    most = int(min([_MAX_LENGTH, *(limit for limit in stored_limits if limit)]))
    prompts = settings.get("prompts")
    if not prompts:
        return None, most
    default = prompts.get(settings.get("default_prompt_name")) or ""
    kinds_of_text = ("document", "passage", "corpus")
    text_prefix = next((prompts[kind] for kind in kinds_of_text if kind in prompts), default)
    return (prompts.get("query", default), text_prefix), most


def _not_a_teacher(name: str, layers: str) -> ModelError:
    return ModelError(
        f"a dense teacher is a Transformer that pools states by mean or cls, found {layers}",
        where=name,
        remedy=remedy("name another teacher with {}", Option("teacher")),
    )


def _interaction_teacher(
    name: str, sets: Sequence[ParagraphSet], tokenizer: QueryTokenizer, device: str | None
) -> Teacher | None:
    """Return a late-interaction model or a cross-encoder, by the files of its model; None for other models.

    :param name: a folder, an installed model, or a hub id, which is downloaded
    :raises ModelError: the model is of these kinds, but in a form that sparta does not read.
    """
    from sparta.training import interaction_teachers as interaction

    folder = installed_folder(name) if is_shipped(name, "reranker") else local_folder(name)
    source = str(folder) if folder.is_dir() else name
    interaction.refuse_pylate(source, _file_of(source, MODULES))
    raw = read_settings(_file_of(source, "config.json"))
    architecture = str((raw.get("architectures") or [""])[0])
    is_late = architecture == interaction.COLBERT or bool(_file_of(source, interaction.COLBERT_SETTINGS))
    if not is_late and not architecture.endswith("ForSequenceClassification"):
        return None
    if not folder.is_dir():
        folder = model_folder(name)
    if is_late:
        return interaction.LateInteractionTeacher(name, folder, device=device)
    check_kind(folder, raw, "teacher")
    return interaction.CrossEncoderTeacher(name, folder, LexicalTeacher(sets, tokenizer), device=device)


def open_teacher(
    names: Sequence[str],
    sets: Sequence[ParagraphSet],
    tokenizer: QueryTokenizer,
    device: str | None = None,
    openers: Sequence[TeacherOpener] = (),
) -> Mixture | None:
    """Return the mixture of the teachers `bm25[=WEIGHT]` and `FOLDER|ID[=WEIGHT]`; None without names.

    A name that no opener knows is a SPARTA model, a late-interaction model, a cross-encoder, or else an
    encoder that scores by the cosine of its vectors.
    """

    def opened(name: str) -> Teacher:
        if name == BM25:
            return LexicalTeacher(sets, tokenizer)
        if teacher := next((opened for opener in openers if (opened := opener(name, device))), None):
            return teacher
        if folder := sparta_folder(name):
            return SpartaTeacher(name, folder, device=device)
        return _interaction_teacher(name, sets, tokenizer, device) or DenseTeacher(name, device=device)

    names_and_weights = [name_and_weight(name, "TEACHER") for name in names]
    return (
        Mixture([(opened(name), weight) for name, weight in names_and_weights]) if names_and_weights else None
    )
