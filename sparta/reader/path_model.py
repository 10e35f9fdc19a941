"""The torch module of path readers, for training and GPUs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.checks import path_of
from sparta.base.errors import ModelError
from sparta.base.remedies import Option, remedy
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.resolve import folder_with
from sparta.neural.backbones import blank_encoder, encoder_config, encoder_width, token_types
from sparta.neural.checkpoint import load_state, save_model, with_weights
from sparta.neural.encoding import each_batch, for_inference
from sparta.neural.stored import check_length, read_json
from sparta.reader.config import ReaderConfig
from sparta.reader.decode import PathScores, Scores
from sparta.reader.path_inputs import PathInput, PathInputs, PathLayout, Sentences
from sparta.reader.records import Text
from sparta.reader.span_reader import SpanReader, padded


class PathModel(nn.Module):
    """An encoder with linear layers for answer starts and ends, for passages and for sentences.

    :param layout: the lengths of inputs, questions and answers
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, layout: PathLayout) -> None:
        super().__init__()
        self.encoder, self.tokenizer, self.layout = encoder, tokenizer, layout
        self._encoder_config = encoder_config(encoder)
        width = encoder_width(encoder)
        self.spans = nn.Linear(width, 2)
        self.passages = nn.Linear(width, 1, bias=False)
        self.sentences = nn.Linear(width, 1, bias=False)
        self._inputs = PathInputs(tokenizer, layout)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.spans.weight.device

    @property
    def on_cpu(self) -> bool:
        """Whether the model computes on a CPU."""
        return self.device.type == "cpu"

    # ------------------------------------------------------------------ folders

    @staticmethod
    def from_encoder(name: str | Path, layout: PathLayout) -> PathModel:
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
        check_length(layout.max_length, reader.encoder_config, option="max_length")
        path_reader = PathModel(reader.encoder, reader.tokenizer, layout)
        path_reader.spans.load_state_dict(reader.spans.state_dict())
        return path_reader

    @staticmethod
    def open(folder: Path, device: str, dtype: str) -> PathModel:
        """Load a path reader onto a device, with its encoder in the number format of `pick_dtype`."""
        return for_inference(PathModel.load(folder), device, dtype)

    @staticmethod
    def load(folder: str | Path) -> PathModel:
        """Load a path reader that `save_pretrained` wrote.

        :raises ModelError: the folder has another layout.
        """
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        layout = PathLayout.from_config(raw, str(folder / "config.json"))
        del raw["path_reader"]
        check_length(layout.max_length, raw, folder)
        model = PathModel(blank_encoder(raw, str(folder)), load_tokenizer(folder), layout)
        return with_weights(model, load_state(folder / "model.safetensors"), str(folder))

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; `int8` stores weights in 8 bits."""
        path_config = {"architectures": ["PathReader"], "path_reader": asdict(self.layout)}
        save_model(folder, self, {**self._encoder_config, **path_config}, int8=int8)

    # ------------------------------------------------------------------ scores

    def make_input(self, question: str, texts: Sequence[Text], sentences: Sentences = ()) -> PathInput:
        """Return the input for a path; see `PathInputs.make`."""
        return self._inputs.make(question, texts, sentences)

    def each(self, batches: Sequence[Sequence[PathInput]]) -> Generator[PathScores[Scores]]:
        """Yield the scores of each batch without gradients."""
        yield from each_batch(self._score, batches, self.device)

    @torch.inference_mode()
    def _score(self, inputs: Sequence[PathInput]) -> PathScores[Scores]:
        return PathScores(*(scores.cpu().numpy() for scores in self(inputs)))

    def forward(self, inputs: Sequence[PathInput]) -> PathScores[torch.Tensor]:
        """Return the scores of each input, independent of the other inputs; -inf where no score applies."""
        ids, mask, segments, readable = (t.to(self.device) for t in padded(inputs))
        types = token_types(self._encoder_config, segments)
        states = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        states = states.to(self.spans.weight.dtype)
        spans = self.spans(states).float().permute(2, 0, 1).masked_fill(~readable, -torch.inf)
        passages = self._pooled(states, [path_input.passage_spans() for path_input in inputs], self.passages)
        sentences = self._pooled(
            states, [path_input.sentence_spans() for path_input in inputs], self.sentences
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
