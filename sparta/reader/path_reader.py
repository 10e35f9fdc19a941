"""The path reader (Chain-of-Skills, Appendix C): reads the passages of a path as one input.

The path reader scores how well each passage supports the question, which sentences support it, and the
answer, which may also be yes or no.
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
from sparta.neural.checkpoint import load_state, save_model
from sparta.neural.encoding import each_batch, pick_device, pick_dtype
from sparta.neural.inputs import special_frame, with_accents
from sparta.neural.pooling import pad_inputs
from sparta.neural.stored import check_length, read_json
from sparta.reader.config import ReaderConfig, path_reader_folder
from sparta.reader.decode import best_spans
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader
from sparta.reader.windows import Window

CHOICES = ("yes", "no")
"""Answers that come from no passage; each is a wordpiece of the input."""
_MARKS = ("[unused0]", "[unused1]")
_SHORTEST_PASSAGE = 8
"""The smallest number of wordpieces for a passage."""
_PATHS_PER_BATCH = 8
Sentences = Sequence[Sequence[tuple[int, int]]]
"""The sentences of each passage, `(start, end)` in characters."""


@dataclass(frozen=True, slots=True)
class PathLayout:
    """A path reader's lengths in wordpieces: input, longest question and longest answer.

    `sentences` tells whether the reader was trained to find, and returns, the sentences that support an
    answer.
    """

    max_length: int = 320
    longest_question: int = 64
    longest_answer: int = 30
    sentences: bool = False

    def __post_init__(self) -> None:
        lengths = (self.max_length, self.longest_question, self.longest_answer)
        are_valid = all(type(length) is int and length > 0 for length in lengths)
        are_valid = are_valid and isinstance(self.sentences, bool)
        if not are_valid or self.max_length < self.longest_question + 4 * _SHORTEST_PASSAGE:
            raise InputError(
                f"the lengths must be whole numbers that leave room for passages, found {self}",
                remedy=remedy("set a larger {}, or a shorter question length", Option("max_length")),
            )


class PathSpan(NamedTuple):
    """An answer of a path, and its probability according to the reader, which is not calibrated.

    The answer lies in the passage of this number, from `start` to before `end`. The answers yes and no lie in
    no passage (`passage` is -1).
    """

    text: str
    score: float
    passage: int = -1
    start: int = 0
    end: int = 0


class PathReading(NamedTuple):
    """The result of reading a path: the score of each passage, the answer, and the supporting sentences.

    A passage with a score below 0 does not support the question. `sentences` lists each passage's supporting
    sentences; None means that the reader does not find sentences.
    """

    scores: list[float]
    answer: PathSpan
    sentences: list[list[tuple[int, int]]] | None


class InputPassage(NamedTuple):
    """A passage in an input: the position of its mark, the start of its text, and its wordpieces' offsets."""

    mark: int
    text_start: int
    offsets: list[tuple[int, int]]


class PathInput(NamedTuple):
    """One input: `[CLS] question [SEP] yes no [P] title [SEP] text [P] title [SEP] text [SEP]`.

    `choices` holds the positions of yes and no. `sentences` holds each sentence's passage number, its number
    within the passage, its first position, and the position after its last.
    """

    ids: list[int]
    segments: list[int]
    choices: tuple[int, int]
    parts: list[InputPassage]
    sentences: list[tuple[int, int, int, int]]

    def window(self, number: int) -> Window:
        """Return the text of one passage as a window of this input."""
        part = self.parts[number]
        return Window(number, self.ids, self.segments, part.text_start, part.offsets)


class PathScores(NamedTuple):
    """The scores of n inputs for answer positions, passages and sentences.

    `spans` has starts and ends `(2, n, length)`; `passages` and `sentences` are `(n, 1 + most)`. The first
    passage score and the first sentence score are the thresholds (the pseudo passage of Appendix C).
    """

    spans: torch.Tensor
    passages: torch.Tensor
    sentences: torch.Tensor


class PathReader(nn.Module):
    """An encoder with linear layers for answer starts and ends, for passages and for sentences.

        reader = PathReader.open()
        [reading] = reader.read("who founded the firm that makes Android", [[Text(…), Text(…)]])

    :param layout: the lengths of inputs, questions and answers
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
        """The device of the parameters."""
        return self.spans.weight.device

    @property
    def encoder_depth(self) -> int:
        """The number of layers of the encoder."""
        return self._depth

    # ------------------------------------------------------------------ folders

    @staticmethod
    def from_encoder(name: str | Path, layout: PathLayout) -> PathReader:
        """Return an untrained path reader on an encoder. If `name` is a reader, keep its span layer too.

        :raises ModelError: a reader with global tokens, whose encoder reads several inputs together; or an
            encoder whose vocabulary lacks a wordpiece that inputs need.
        :raises InputError: inputs longer than the encoder's positions.
        """
        reader_folder = folder_with("reader", Path(name))
        if reader_folder and read_json(reader_folder / "config.json")["reader"].get("global_tokens"):
            raise ModelError(
                "the model is a reader with global tokens, from which no path reader can be trained",
                where=str(name),
                remedy=remedy(
                    "name another model with {}, or omit the option to use the shipped encoder",
                    Option("encoder"),
                ),
            )
        reader = SpanReader.from_encoder(name, ReaderConfig())
        reader.check_length(layout.max_length, option="max_length")
        path_reader = PathReader(reader.encoder, reader.tokenizer, layout)
        path_reader.spans.load_state_dict(reader.spans.state_dict())
        return path_reader

    @staticmethod
    def open(name: str | Path | None = None, *, device: str | None = None, dtype: str = "auto") -> PathReader:
        """Open a path reader's folder; None means the path reader that ships with sparta.

        :param dtype: fp32, bf16, fp16, or auto: bf16 if the device multiplies bf16 fast
        :raises ModelError: there is no such path reader, or the model has another layout.
        """
        torch_device = pick_device(device)
        reader = PathReader.load(path_reader_folder(name)).to(torch_device).eval()
        reader.encoder.to(pick_dtype(dtype, torch_device))
        return reader

    @staticmethod
    def load(folder: str | Path) -> PathReader:
        """Load a path reader that `save_pretrained` wrote.

        :raises ModelError: the folder has another layout.
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
                f"the configuration or the weights of the path reader are not valid ({error})",
                where=where,
                remedy="copy the whole model folder again",
            ) from error
        check_length(layout.max_length, reader._encoder_config, where)
        return reader

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; `int8` stores weights in 8 bits."""
        path_config = {"architectures": ["PathReader"], "path_reader": asdict(self.layout)}
        save_model(folder, self, {**self._encoder_config, **path_config}, int8=int8)

    # ------------------------------------------------------------------ inputs and scores

    def make_input(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """Return the input for a path. A long question or passage is truncated to its beginning.

        :param sentences: each passage's sentences; empty if the sentences need no scores
        :raises InputError: there is no passage, or more passages than fit into an input.
        """
        first, last = special_frame(self.tokenizer)
        question_ids = self._ids(question)[: self.layout.longest_question]
        ids = [first, *question_ids, last, *self.choices]
        segments = [0] * (len(question_ids) + 2)
        room = self.layout.max_length - len(ids) - 1
        if not 1 <= len(texts) <= room // _SHORTEST_PASSAGE:
            raise InputError(
                f"a path must have 1 to {room // _SHORTEST_PASSAGE} passages here, found {len(texts)}",
                remedy=remedy("read shorter paths, or train with a larger {}", Option("max_length")),
            )
        titles = [self._ids(text.title)[: room // len(texts) // 4] for text in texts]
        heads = [[self.mark, *title, *([last] if title else [])] for title in titles]
        encoded = [self.tokenizer.encode(text.text, add_special_tokens=False) for text in texts]
        lengths = length_limits([len(encoding.ids) for encoding in encoded], room - sum(map(len, heads)))
        parts: list[InputPassage] = []
        for text, head, encoding, length in zip(texts, heads, encoded, lengths, strict=True):
            offsets = with_accents(text.text, encoding.offsets[:length])
            parts.append(InputPassage(len(ids), len(ids) + len(head), offsets))
            ids += [*head, *encoding.ids[:length]]
        ids.append(last)
        segments += [1] * (len(ids) - len(segments))
        sentence_places = [
            (passage, number, *inside)
            for passage, (part, passage_sentences) in enumerate(zip(parts, sentences, strict=False))
            for number, span in enumerate(passage_sentences)
            if (inside := _places(part, *span)) is not None
        ]
        choices = len(question_ids) + 2
        return PathInput(ids, segments, (choices, choices + 1), parts, sentence_places)

    def forward(self, inputs: Sequence[PathInput]) -> PathScores:
        """Return the scores of each input, independent of the other inputs; -inf where no score applies."""
        ids, mask, segments = pad_inputs(inputs)
        readable = torch.zeros(ids.shape, dtype=torch.bool)
        for row, path_input in enumerate(inputs):
            readable[row, list(path_input.choices)] = True
            for part in path_input.parts:
                readable[row, part.text_start : part.text_start + len(part.offsets)] = True
        ids, mask, segments, readable = (t.to(self.device) for t in (ids, mask, segments, readable))
        types = token_types(self._encoder_config, segments)
        states = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        states = states.to(self.spans.weight.dtype)
        spans = self.spans(states).float().permute(2, 0, 1).masked_fill(~readable, -torch.inf)
        passages = self._pooled(
            states,
            [[(0, 1), *((p.mark, p.mark + 1) for p in path_input.parts)] for path_input in inputs],
            self.passages,
        )
        sentences = self._pooled(
            states,
            [[(0, 1), *((a, b) for _, _, a, b in path_input.sentences)] for path_input in inputs],
            self.sentences,
        )
        return PathScores(spans, passages, sentences)

    def _pooled(
        self, states: torch.Tensor, spans_by_input: Sequence[Sequence[tuple[int, int]]], layer: nn.Linear
    ) -> torch.Tensor:
        """Return the scores of the mean states of spans, `(n, most)`; -inf if an input has fewer spans."""
        max_spans = max(map(len, spans_by_input))
        weights = torch.zeros((len(spans_by_input), max_spans, states.shape[1]))
        has_span = torch.zeros((len(spans_by_input), max_spans), dtype=torch.bool)
        for row, spans in enumerate(spans_by_input):
            has_span[row, : len(spans)] = True
            for number, (start, end) in enumerate(spans):
                weights[row, number, start:end] = 1 / (end - start)
        pooled = weights.to(states.device, states.dtype) @ states
        return layer(pooled).float()[..., 0].masked_fill(~has_span.to(states.device), -torch.inf)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    # ------------------------------------------------------------------ reading

    def read(
        self, question: str, paths: Sequence[Sequence[Text]], *, language: str = "en"
    ) -> list[PathReading]:
        """Read each path independently of the other paths.

        :param language: the language of the texts, which decides folding and sentence splitting
        :raises InputError: a path without passages, or with too many.
        """
        fold = language_of(language).fold
        split = sentence_splitter(language) if self.layout.sentences else lambda _text: []
        prepared = {text: (fold(text.text), fold(text.title), split(text.text)) for p in paths for text in p}
        sentences_by_path = [[prepared[text][2] for text in texts] for texts in paths]
        inputs = [
            self.make_input(fold(question), [Text(*prepared[text][:2]) for text in texts], sentences)
            for texts, sentences in zip(paths, sentences_by_path, strict=True)
        ]
        order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i].ids))
        on_cpu = self.device.type == "cpu"
        batches = [[inputs[i] for i in batch] for batch in batched(order, 1 if on_cpu else _PATHS_PER_BATCH)]
        scores = each_batch(self._score, batches, self.device)
        rows = [
            (texts, row) for batch, texts in zip(batches, scores, strict=True) for row in range(len(batch))
        ]
        scores_by_path = dict(zip(order, rows, strict=True))
        return [
            self._reading(inputs[i], paths[i], sentences_by_path[i], *scores_by_path[i])
            for i in range(len(inputs))
        ]

    @torch.inference_mode()
    def _score(self, inputs: Sequence[PathInput]) -> PathScores:
        return PathScores(*(t.cpu() for t in self(inputs)))

    def _reading(
        self,
        path_input: PathInput,
        texts: Sequence[Text],
        sentences_by_passage: Sentences,
        scores: PathScores,
        row: int,
    ) -> PathReading:
        threshold, *passages = scores.passages[row].tolist()[: 1 + len(texts)]
        threshold_of_sentences, *sentences = scores.sentences[row].tolist()[: 1 + len(path_input.sentences)]
        supporting: list[list[tuple[int, int]]] = [[] for _ in texts]
        for (passage, number, _, _), score in zip(path_input.sentences, sentences, strict=True):
            if score > threshold_of_sentences:
                supporting[passage].append(sentences_by_passage[passage][number])
        answer = self._answer(path_input, texts, scores.spans[:, row])
        supporting_sentences = supporting if self.layout.sentences else None
        return PathReading(
            [score_of_passage - threshold for score_of_passage in passages], answer, supporting_sentences
        )

    def _answer(self, path_input: PathInput, texts: Sequence[Text], spans: torch.Tensor) -> PathSpan:
        """Return the most probable answer."""
        answers = [
            PathSpan(choice, float(spans[:, position].mean()))
            for choice, position in zip(CHOICES, path_input.choices, strict=True)
        ]
        for number, part in enumerate(path_input.parts):
            passage_scores = torch.full_like(spans, -torch.inf)
            inside = slice(part.text_start, part.text_start + len(part.offsets))
            passage_scores[:, inside] = spans[:, inside]
            window = path_input.window(number)
            for span in best_spans(passage_scores[:, None].numpy(), [window], 1, self.layout.longest_answer):
                text = texts[number].text[span.start : span.end]
                answers.append(PathSpan(text, span.score, number, span.start, span.end))
        best = max(answers, key=lambda answer: answer.score)
        return best._replace(score=float(torch.exp(2 * best.score - spans.logsumexp(1).sum())))


def length_limits(lengths: Sequence[int], room: int) -> list[int]:
    """Return each passage's length limit: short passages fit whole, and the others share the rest equally."""
    limits: dict[int, int] = {}
    for passages_left, i in zip(
        range(len(lengths), 0, -1), sorted(range(len(lengths)), key=lambda i: lengths[i]), strict=True
    ):
        limits[i] = min(lengths[i], (room - sum(limits.values())) // passages_left)
    return [limits[i] for i in range(len(lengths))]


def _places(part: InputPassage, start: int, end: int) -> tuple[int, int] | None:
    """Return the input positions of a character span, the end exclusive; None if the input lacks the span."""
    inside = [i for i, (a, b) in enumerate(part.offsets) if a < end and b > start]
    return (part.text_start + inside[0], part.text_start + inside[-1] + 1) if inside else None


def _mark(tokenizer: Tokenizer) -> int:
    """Return the id of the wordpiece that marks a passage's beginning; no text contains this wordpiece."""
    for name in _MARKS:
        token_id: Any = tokenizer.token_to_id(name)
        if token_id is not None:
            return int(token_id)
    raise ModelError(
        f"the vocabulary lacks {' and '.join(_MARKS)}, one of which must mark passages",
        remedy="use an encoder with BERT's vocabulary, which has such a token",
    )


def _choices(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the wordpieces yes and no."""
    ids = [tokenizer.encode(choice, add_special_tokens=False).ids for choice in CHOICES]
    words = [[tokenizer.id_to_token(i) for i in choice_ids] for choice_ids in ids]
    if words != [[choice] for choice in CHOICES]:
        raise ModelError(
            f"the vocabulary must contain the words {' and '.join(CHOICES)}, found {words}",
            remedy="use an English encoder: a path reader reads English",
        )
    return [choice_ids[0] for choice_ids in ids]
