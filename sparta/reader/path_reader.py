"""The reader of paths (Chain-of-Skills, Appendix C): passages that belong together, read as one input.

What it tells: how well each passage supports the question, which sentences do, and the answer, which may also
be yes or no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.checks import path_of
from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Option, remedy
from sparta.data.languages import language_of
from sparta.data.sentences import sentence_splitter
from sparta.models.query_encoder import load_tokenizer
from sparta.models.resolve import folder_with
from sparta.neural.backbones import blank_encoder, encoder_config, encoder_size, token_types
from sparta.neural.checkpoint import load_state, read_json, save_model
from sparta.neural.encoding import each_batch, pick_device, pick_dtype
from sparta.neural.inputs import special_frame, with_accents
from sparta.neural.pooling import pad_inputs
from sparta.neural.stored import check_length
from sparta.reader.config import ReaderConfig, path_reader_folder
from sparta.reader.decode import best_spans
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader
from sparta.reader.windows import Window

CHOICES = ("yes", "no")
"""Answers that stand in no passage; each is a wordpiece of the input."""
_MARKS = ("[unused0]", "[unused1]")
_SHORTEST = 8
"""Wordpieces of a passage, at least."""
_PATHS_AT_ONCE = 8
Sentences = Sequence[Sequence[tuple[int, int]]]
"""Of each passage its sentences, `(start, end)` in characters."""


@dataclass(frozen=True, slots=True)
class PathLayout:
    """Lengths in wordpieces: of an input, of a question and of an answer. `sentences`: it was taught which
    sentences support an answer, and tells them.
    """

    max_length: int = 320
    longest_question: int = 64
    longest_answer: int = 30
    sentences: bool = False

    def __post_init__(self) -> None:
        lengths = (self.max_length, self.longest_question, self.longest_answer)
        whole = all(type(one) is int and one > 0 for one in lengths) and isinstance(self.sentences, bool)
        if not whole or self.max_length < self.longest_question + 4 * _SHORTEST:
            raise InputError(
                f"expected whole numbers of wordpieces, with room for passages, found {self}",
                remedy=remedy("give a greater {}, or shorter questions", Option("max_length")),
            )


class PathSpan(NamedTuple):
    """An answer, and the probability that the reader gives it in its path; it is not calibrated.

    It stands in the passage of this number from `start` to before `end`; yes and no stand nowhere
    (`passage` is -1).
    """

    text: str
    score: float
    passage: int = -1
    start: int = 0
    end: int = 0


class PathReading(NamedTuple):
    """What is told of a path: of each passage how much it scores above the threshold (what has less than 0
    does not support the question), the answer, and of each passage the sentences that support it (None: the
    reader does not tell them).
    """

    scores: list[float]
    answer: PathSpan
    sentences: list[list[tuple[int, int]]] | None


class Part(NamedTuple):
    """A passage in an input: where its mark is, where its text begins, and the text's wordpieces' offsets."""

    mark: int
    text_start: int
    offsets: list[tuple[int, int]]


class PathInput(NamedTuple):
    """`[CLS] question [SEP] yes no [P] title [SEP] text [P] title [SEP] text [SEP]`; `choices` are the places
    of yes and no; `sentences` has each sentence's passage and number in it, from which place to before which.
    """

    ids: list[int]
    segments: list[int]
    choices: tuple[int, int]
    parts: list[Part]
    sentences: list[tuple[int, int, int, int]]

    def window(self, number: int) -> Window:
        """The text of a passage, as if it were what the input reads."""
        part = self.parts[number]
        return Window(number, self.ids, self.segments, part.text_start, part.offsets)


class PathScores(NamedTuple):
    """Of each input: start and end scores `(2, n, length)`, passages `(n, 1 + most)` and sentences
    `(n, 1 + most)`, the threshold's score first (the pseudo passage of Appendix C).
    """

    spans: torch.Tensor
    passages: torch.Tensor
    sentences: torch.Tensor


class PathReader(nn.Module):
    """An encoder with linear layers for starts and ends of answers, for passages and for sentences.

        reader = PathReader.open()
        [reading] = reader.read("who founded the firm that makes Android", [[Text(…), Text(…)]])

    :param layout: how it reads
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, layout: PathLayout) -> None:
        super().__init__()
        self.encoder, self.tokenizer, self.layout = encoder, tokenizer, layout
        self._encoder_config = encoder_config(encoder)
        width, self._depth = encoder_size(encoder)
        self.spans = nn.Linear(width, 2)
        self.passages = nn.Linear(width, 1, bias=False)
        self.sentences = nn.Linear(width, 1, bias=False)
        self.mark, self.choices = _mark(tokenizer), _choices(tokenizer)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.spans.weight.device

    @property
    def encoder_depth(self) -> int:
        """How many layers the encoder has."""
        return self._depth

    # ------------------------------------------------------------------ folders

    @staticmethod
    def from_encoder(name: str | Path, layout: PathLayout) -> PathReader:
        """Return an untrained one on an encoder; of a reader, also its span layer is taken.

        :raises ModelError: a reader with global tokens, whose encoder reads more than one input; an encoder
            whose vocabulary lacks what an input needs.
        :raises InputError: inputs longer than the encoder has positions for.
        """
        found = folder_with("reader", Path(name))
        if found and read_json(found / "config.json")["reader"].get("global_tokens"):
            raise ModelError(
                "expected an encoder, or a reader without global tokens, found one with them",
                where=str(name),
                remedy=remedy("name another with {}, or leave it out for the shipped one", Option("encoder")),
            )
        reader = SpanReader.from_encoder(name, ReaderConfig())
        reader.check_length(layout.max_length, option="max_length")
        made = PathReader(reader.encoder, reader.tokenizer, layout)
        made.spans.load_state_dict(reader.spans.state_dict())
        return made

    @staticmethod
    def open(name: str | Path | None = None, *, device: str | None = None, dtype: str = "auto") -> PathReader:
        """Open the folder of a reader of paths; None is the one that ships with sparta.

        :param dtype: fp32, bf16, fp16, or auto: bf16 where the device multiplies it fast
        :raises ModelError: there is none, or a model of another layout.
        """
        place = pick_device(device)
        reader = PathReader.load(path_reader_folder(name)).to(place).eval()
        reader.encoder.to(pick_dtype(dtype, place))
        return reader

    @staticmethod
    def load(folder: str | Path) -> PathReader:
        """Return what `save_pretrained` wrote.

        :raises ModelError: another layout.
        """
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        where = str(folder / "config.json")
        try:
            layout = PathLayout(**raw.pop("path_reader"))
            reader = PathReader(blank_encoder(raw, str(folder)), load_tokenizer(folder), layout)
            reader.load_state_dict(load_state(folder / "model.safetensors"))
        except (KeyError, TypeError, RuntimeError, InputError) as error:
            raise ModelError(
                f"expected the configuration of a reader of paths and its weights ({error})",
                where=where,
                remedy="copy the model folder again, whole",
            ) from error
        check_length(layout.max_length, reader._encoder_config, where)
        return reader

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; with `int8`, in 8 bits with row scales."""
        own = {"architectures": ["PathReader"], "path_reader": asdict(self.layout)}
        save_model(folder, self, {**self._encoder_config, **own}, int8=int8)

    # ------------------------------------------------------------------ inputs and scores

    def make_input(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """What is read of a path: of a long question the beginning, and of passages that are too long for an
        input as much of the beginning of each as there is room for.

        :param sentences: those of each passage, if they are wanted
        :raises InputError: no passage, or more than an input has room for.
        """
        first, last = special_frame(self.tokenizer)
        question_ids = self._ids(question)[: self.layout.longest_question]
        ids = [first, *question_ids, last, *self.choices]
        segments = [0] * (len(question_ids) + 2)
        room = self.layout.max_length - len(ids) - 1
        if not 1 <= len(texts) <= room // _SHORTEST:
            raise InputError(
                f"expected a path of 1 to {room // _SHORTEST} passages, found {len(texts)}",
                remedy=remedy("read shorter paths, or train with a greater {}", Option("max_length")),
            )
        titles = [self._ids(text.title)[: room // len(texts) // 4] for text in texts]
        heads = [[self.mark, *title, *([last] if title else [])] for title in titles]
        encoded = [self.tokenizer.encode(text.text, add_special_tokens=False) for text in texts]
        lengths = shares([len(one.ids) for one in encoded], room - sum(map(len, heads)))
        parts: list[Part] = []
        for text, head, one, length in zip(texts, heads, encoded, lengths, strict=True):
            offsets = with_accents(text.text, one.offsets[:length])
            parts.append(Part(len(ids), len(ids) + len(head), offsets))
            ids += [*head, *one.ids[:length]]
        ids.append(last)
        segments += [1] * (len(ids) - len(segments))
        places = [
            (passage, number, *inside)
            for passage, (part, own) in enumerate(zip(parts, sentences, strict=False))
            for number, span in enumerate(own)
            if (inside := _places(part, *span)) is not None
        ]
        choices = len(question_ids) + 2
        return PathInput(ids, segments, (choices, choices + 1), parts, places)

    def forward(self, inputs: Sequence[PathInput]) -> PathScores:
        """The scores of inputs, as if each were alone; -inf where nothing is."""
        ids, mask, segments = pad_inputs(inputs)
        readable = torch.zeros(ids.shape, dtype=torch.bool)
        for row, one in enumerate(inputs):
            readable[row, list(one.choices)] = True
            for part in one.parts:
                readable[row, part.text_start : part.text_start + len(part.offsets)] = True
        ids, mask, segments, readable = (t.to(self.device) for t in (ids, mask, segments, readable))
        types = token_types(self._encoder_config, segments)
        states = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        states = states.to(self.spans.weight.dtype)
        spans = self.spans(states).float().permute(2, 0, 1).masked_fill(~readable, -torch.inf)
        passages = self._pooled(
            states, [[(0, 1), *((p.mark, p.mark + 1) for p in one.parts)] for one in inputs], self.passages
        )
        sentences = self._pooled(
            states, [[(0, 1), *((a, b) for _, _, a, b in one.sentences)] for one in inputs], self.sentences
        )
        return PathScores(spans, passages, sentences)

    def _pooled(
        self, states: torch.Tensor, places: Sequence[Sequence[tuple[int, int]]], layer: nn.Linear
    ) -> torch.Tensor:
        """The scores of the means of states at some places, `(n, most)`; -inf where an input has fewer."""
        most = max(map(len, places))
        weights = torch.zeros((len(places), most, states.shape[1]))
        there = torch.zeros((len(places), most), dtype=torch.bool)
        for row, own in enumerate(places):
            there[row, : len(own)] = True
            for number, (start, end) in enumerate(own):
                weights[row, number, start:end] = 1 / (end - start)
        pooled = weights.to(states.device, states.dtype) @ states
        return layer(pooled).float()[..., 0].masked_fill(~there.to(states.device), -torch.inf)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    # ------------------------------------------------------------------ reading

    def read(
        self, question: str, paths: Sequence[Sequence[Text]], *, language: str = "en"
    ) -> list[PathReading]:
        """Read each path by itself.

        :param language: that of the texts: how they are folded and where their sentences end
        :raises InputError: a path without passages, or with too many.
        """
        fold = language_of(language).fold
        split = sentence_splitter(language) if self.layout.sentences else lambda _text: []
        of_text = {text: (fold(text.text), fold(text.title), split(text.text)) for p in paths for text in p}
        parts = [[of_text[text][2] for text in own] for own in paths]
        made = [
            self.make_input(fold(question), [Text(*of_text[text][:2]) for text in own], sentences)
            for own, sentences in zip(paths, parts, strict=True)
        ]
        order = sorted(range(len(made)), key=lambda i: -len(made[i].ids))
        alone = self.device.type == "cpu"
        batches = [[made[i] for i in some] for some in batched(order, 1 if alone else _PATHS_AT_ONCE)]
        scores = each_batch(self._score, batches, self.device)
        rows = [(own, row) for some, own in zip(batches, scores, strict=True) for row in range(len(some))]
        found = dict(zip(order, rows, strict=True))
        return [self._reading(made[i], paths[i], parts[i], *found[i]) for i in range(len(made))]

    @torch.inference_mode()
    def _score(self, inputs: Sequence[PathInput]) -> PathScores:
        return PathScores(*(t.cpu() for t in self(inputs)))

    def _reading(
        self, made: PathInput, texts: Sequence[Text], parts: Sentences, scores: PathScores, row: int
    ) -> PathReading:
        threshold, *passages = scores.passages[row].tolist()[: 1 + len(texts)]
        least, *sentences = scores.sentences[row].tolist()[: 1 + len(made.sentences)]
        supporting: list[list[tuple[int, int]]] = [[] for _ in texts]
        for (passage, number, _, _), score in zip(made.sentences, sentences, strict=True):
            if score > least:
                supporting[passage].append(parts[passage][number])
        answer = self._answer(made, texts, scores.spans[:, row])
        own = supporting if self.layout.sentences else None
        return PathReading([one - threshold for one in passages], answer, own)

    def _answer(self, made: PathInput, texts: Sequence[Text], spans: torch.Tensor) -> PathSpan:
        """The most probable answer."""
        found = [
            PathSpan(one, float(spans[:, at].mean())) for one, at in zip(CHOICES, made.choices, strict=True)
        ]
        for number, part in enumerate(made.parts):
            here = torch.full_like(spans, -torch.inf)
            inside = slice(part.text_start, part.text_start + len(part.offsets))
            here[:, inside] = spans[:, inside]
            for one in best_spans(here[:, None], [made.window(number)], 1, self.layout.longest_answer):
                text = texts[number].text[one.start : one.end]
                found.append(PathSpan(text, one.score, number, one.start, one.end))
        best = max(found, key=lambda one: one.score)
        return best._replace(score=float(torch.exp(2 * best.score - spans.logsumexp(1).sum())))


def shares(lengths: Sequence[int], room: int) -> list[int]:
    """How much each may have, so that all fit: the short ones everything, the others alike."""
    given: dict[int, int] = {}
    for left, i in zip(
        range(len(lengths), 0, -1), sorted(range(len(lengths)), key=lambda i: lengths[i]), strict=True
    ):
        given[i] = min(lengths[i], (room - sum(given.values())) // left)
    return [given[i] for i in range(len(lengths))]


def _places(part: Part, start: int, end: int) -> tuple[int, int] | None:
    """From where to before where the wordpieces of some characters stand; None where the input has none."""
    inside = [i for i, (a, b) in enumerate(part.offsets) if a < end and b > start]
    return (part.text_start + inside[0], part.text_start + inside[-1] + 1) if inside else None


def _mark(tokenizer: Tokenizer) -> int:
    """The wordpiece that stands before a passage: one that no text has."""
    for name in _MARKS:
        found: Any = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise ModelError(
        f"expected a vocabulary with one of {', '.join(_MARKS)}, to mark passages with, found none",
        remedy="begin with another encoder: those of BERT's vocabulary have it",
    )


def _choices(tokenizer: Tokenizer) -> list[int]:
    """The wordpieces of yes and no."""
    ids = [tokenizer.encode(one, add_special_tokens=False).ids for one in CHOICES]
    words = [[tokenizer.id_to_token(i) for i in own] for own in ids]
    if words != [[one] for one in CHOICES]:
        raise ModelError(
            f"expected a vocabulary with the words {' and '.join(CHOICES)}, found {words}",
            remedy="begin with another encoder: a reader of paths reads English",
        )
    return [own[0] for own in ids]
