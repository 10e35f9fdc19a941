"""Teachers that compare a question's tokens with a text's: late interaction (ColBERT) and cross-encoders."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from sparta.base.errors import ModelError
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.models.folders.cross_encoder import CrossEncoder
from sparta.models.folders.pairs import check_finite, check_kind, pair_tokenizer
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.resolve import hash_folder
from sparta.neural.backbones import blank_encoder, load_encoder, longest_input
from sparta.neural.batches import length_sorted_batches
from sparta.neural.checkpoint import load_state
from sparta.neural.devices import uses_cpu
from sparta.neural.encoding import arithmetic
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs
from sparta.neural.stored import read_json
from sparta.training.teachers import LexicalTeacher, VectorCache

COLBERT = "HF_ColBERT"
"""The architecture of a late-interaction model in its config.json."""
COLBERT_SETTINGS = "artifact.metadata"
"""The file that ColBERT writes beside a model's weights, and that tells its folder from other encoders'."""
READ_OF_KIND = 4
"""Number of sentences, and of other texts, that a cross-encoder reads for each question of a batch."""
_MOST_CACHED_TEXTS = 50_000
"""Number of texts whose token states are kept, in about 2 GB: a text comes again every few hundred steps."""
_TOKEN_BUDGET = 4096
_LONGEST_TEXT = 256


class LateInteractionTeacher:
    """A late-interaction model: for each token of the question the highest cosine with a token of the text.

    A score is the sum over the question's tokens (Khattab and Zaharia, SIGIR 2020, eq. 3), between minus and
    plus their number. Markers that follow [CLS] tell questions and texts apart; punctuation in texts does
    not count. Questions are not filled up with [MASK]. A model with a projection (`linear.weight`) compares
    projected states.
    """

    reads_context = False

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        settings = read_json(folder / COLBERT_SETTINGS)
        self.projection = _projection(folder)
        self.encoder = load_encoder(folder).to(device or "cpu")
        if self.projection is not None:
            self.projection.to(device or "cpu")
        self.tokenizer = load_tokenizer(folder)
        self.tokenizer.enable_truncation(longest_input(self.encoder, _LONGEST_TEXT) - 1)
        self.markers = [
            _token_id(self.tokenizer, settings.get(key, marker), folder)
            for key, marker in (("query_token_id", "[unused0]"), ("doc_token_id", "[unused1]"))
        ]
        self.punctuation = {
            number for mark in string.punctuation if (number := self.tokenizer.token_to_id(mark)) is not None
        }
        self._cache: VectorCache[tuple[int, str], torch.Tensor] = VectorCache(_MOST_CACHED_TEXTS)

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the scores, `(n_questions, n_candidates) float32`."""
        texts = [candidate.titled_text for candidate in candidates]
        question_states = self._states(questions, kind=0)
        text_states = self._states(texts, kind=1)
        tokens = torch.cat(text_states).float()
        lengths = torch.tensor([len(states) for states in text_states])
        text_of_token = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        scores = torch.empty(len(questions), len(texts))
        for row, states in enumerate(question_states):
            cosines = states.float() @ tokens.T
            highest = torch.full((len(states), len(texts)), -1.0)
            highest.scatter_reduce_(1, text_of_token.expand(len(states), -1), cosines, "amax")
            scores[row] = highest.sum(0)
        return scores

    def _states(self, texts: Sequence[str], kind: int) -> list[torch.Tensor]:
        """Return the states of each text's tokens, `(n_tokens, width)`, of length 1."""
        keys = [(kind, text) for text in texts]
        return self._cache.get(keys, texts, lambda new_texts: self._encode(new_texts, kind))

    def _encode(self, texts: Sequence[str], kind: int) -> list[torch.Tensor]:
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        marked = [[first, self.markers[kind], *others] for first, *others in ids]
        states = [torch.empty(0)] * len(texts)
        for i, text_states in token_states(self.encoder, marked, self.projection):
            counts = [kind == 0 or number not in self.punctuation for number in marked[i]]
            states[i] = functional.normalize(text_states, dim=1)[torch.tensor(counts)].half()
        return states


def token_states(
    encoder: nn.Module, rows: Sequence[list[int]], projection: nn.Module | None = None
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the number of each row of wordpiece ids, and its last states `(length, width) float32`."""
    device = next(encoder.parameters()).device
    for batch in length_sorted_batches(list(map(len, rows)), _TOKEN_BUDGET, 256):
        inputs = [EncoderInput(rows[i], [0] * len(rows[i]), 0, len(rows[i])) for i in batch]
        ids, mask, _ = (part.to(device) for part in pad_inputs(inputs))
        with torch.no_grad(), arithmetic(device):
            states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            states = states if projection is None else projection(states)
        for i, row in zip(batch, states.float().cpu(), strict=True):
            yield i, row[: len(rows[i])]


class CrossEncoderTeacher:
    """A cross-encoder's logits for the candidates that share most with a question.

    Reading all pairs of a batch would take longer than the training step. So the teacher reads, for each
    question, the sentences and the other texts with the highest BM25 scores, four of each kind. It has no
    score for the others: NaN. Equal texts count once.
    """

    reads_context = False

    def __init__(
        self, name: str, folder: Path, lexical: LexicalTeacher, *, device: str | None = None
    ) -> None:
        self.name = Path(name).name
        self.identity = hash_folder(folder)
        self.lexical = lexical
        self.network = CrossEncoder(folder) if uses_cpu(device or "cpu") else PairNetwork.load(folder, device)
        self._cache: VectorCache[tuple[str, str], float] = VectorCache()

    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the logits, `(n_questions, n_candidates) float32`; NaN for pairs that were not read."""
        similar = self.lexical.scores(questions, candidates).numpy()
        texts = [candidate.titled_text for candidate in candidates]
        kinds = [bool(candidate.context) for candidate in candidates]
        first: dict[tuple[bool, str], int] = {}
        first_equal = [first.setdefault(key, i) for i, key in enumerate(zip(kinds, texts, strict=True))]
        is_read = np.zeros(similar.shape, bool)
        for kind in (False, True):
            of_kind = np.array([i for (kind_of_text, _), i in first.items() if kind_of_text == kind], int)
            best = np.argsort(-similar[:, of_kind], axis=1, kind="stable")[:, :READ_OF_KIND]
            np.put_along_axis(is_read, of_kind[best], values=True, axis=1)
        is_read = is_read[:, first_equal]
        rows, columns = (numbers.tolist() for numbers in np.nonzero(is_read))
        pairs = [(questions[row], texts[column]) for row, column in zip(rows, columns, strict=True)]
        logits = torch.tensor(self._cache.get(pairs, pairs, self._read), dtype=torch.float32)
        scores = torch.full(similar.shape, torch.nan)
        scores[rows, columns] = logits
        return scores

    def _read(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return self.network.logits(*map(list, zip(*pairs, strict=True))).tolist()


class PairNetwork(nn.Module):
    """BERT with a pooler and a classifier of one label, as in `BertForSequenceClassification`, for GPUs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        raw = read_json(folder / "config.json")
        check_kind(folder, raw)
        self.tokenizer = pair_tokenizer(folder, raw)
        state = load_state(folder / "model.safetensors")
        encoder = {n.removeprefix("bert."): t for n, t in state.items() if n.startswith("bert.")}
        self.encoder = blank_encoder(raw, str(folder))
        self.pooler = nn.Linear(raw["hidden_size"], raw["hidden_size"])
        self.classifier = nn.Linear(raw["hidden_size"], 1)
        try:
            parts = ("weight", "bias")
            self.pooler.load_state_dict({part: encoder.pop(f"pooler.dense.{part}") for part in parts})
            self.classifier.load_state_dict({part: state[f"classifier.{part}"] for part in parts})
            encoder.pop("embeddings.position_ids", None)
            self.encoder.load_state_dict(encoder)
        except (KeyError, RuntimeError) as error:
            raise ModelError(
                f"the weights are not those of a cross-encoder: {str(error).splitlines()[0][:200]}",
                where=str(folder),
                remedy="copy the complete model folder again",
            ) from error

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> PairNetwork:
        """Return the network of a folder on a device, ready to read."""
        return cls(folder).to(device or "cpu").eval()

    def logits(self, queries: Sequence[str], texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the logit of each query with its text, `(n,) float32`.

        :raises ModelError: a logit is infinite or not a number.
        """
        pairs = self.tokenizer.inputs(queries, texts)
        lengths = [len(pair.ids) for pair in pairs]
        logits = np.empty(len(pairs), np.float32)
        device = self.classifier.weight.device
        for batch in length_sorted_batches(lengths, _TOKEN_BUDGET, 256):
            ids, mask, segments = (part.to(device) for part in pad_inputs([pairs[i] for i in batch]))
            with torch.no_grad(), arithmetic(device):
                logits[list(batch)] = self(ids, mask, segments).float().cpu().numpy()
        check_finite(self.folder, logits)
        return logits

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return the logits, `(n,)`."""
        first = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=segments)[0][:, 0]
        return self.classifier(torch.tanh(self.pooler(first)))[:, 0]


def refuse_pylate(name: str, modules: Path | None) -> None:
    """Refuse a late-interaction model of PyLate, whose weights lie in other files than ColBERT's.

    :param modules: the model's modules.json, if it has one
    """
    if modules and b"pylate." in modules.read_bytes():
        raise ModelError(
            "a late-interaction model in the form of PyLate cannot teach",
            where=name,
            remedy=remedy(
                "name a model in the form of ColBERT, or another teacher, with {}", Option("teacher")
            ),
        )


def _projection(folder: Path) -> nn.Linear | None:
    """Return the layer that projects states, or None if the model has none."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ModelError(
            "expected the weights as model.safetensors, which also holds the projection",
            where=str(folder),
            remedy="save the model again in this format",
        )
    with safe_open(str(path), framework="pt") as stored:
        if "linear.weight" not in stored.keys():  # noqa: SIM118 (not a mapping)
            return None
        weight = stored.get_tensor("linear.weight").float()
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def _token_id(tokenizer: Tokenizer, token: object, folder: Path) -> int:
    number = tokenizer.token_to_id(str(token))
    if number is None:
        raise ModelError(
            f"the vocabulary lacks the marker {token!r}, which {COLBERT_SETTINGS} names",
            where=str(folder),
            remedy="copy the complete model folder again",
        )
    return int(number)
