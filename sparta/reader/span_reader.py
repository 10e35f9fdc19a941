"""The reader's model: an encoder, and a start score and an end score for each wordpiece."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.checks import path_of
from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Command, Option, remedy
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.registered import local_folder
from sparta.models.resolve import folder_with, is_shipped, sparta_folder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import (
    as_plain_bert,
    blank_encoder,
    encoder_config,
    encoder_width,
    load_encoder,
    token_types,
)
from sparta.neural.checkpoint import load_state, save_model, with_weights
from sparta.neural.encoding import each_batch, for_inference
from sparta.neural.pooling import pad_inputs
from sparta.neural.stored import check_length, read_json
from sparta.reader.config import ReaderConfig, ReaderLayout, reader_folder
from sparta.reader.decode import Scores
from sparta.reader.fusion import FusedEncoder
from sparta.reader.records import Text
from sparta.reader.windows import ReaderInput, Window, answer_mask, windows


class SpanReader(nn.Module):
    """An encoder with a linear layer that gives each wordpiece a start and an end score (BERT, §4.2)."""

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: ReaderConfig) -> None:
        super().__init__()
        self.tokenizer, self.config = tokenizer, config
        self.encoder_config = encoder_config(encoder)
        width = encoder_width(encoder)
        self.encoder = FusedEncoder(encoder, config.global_tokens) if config.global_tokens else encoder
        self.spans = nn.Linear(width, 2)

    @property
    def on_cpu(self) -> bool:
        """Whether the model computes on a CPU."""
        return self.device.type == "cpu"

    def each(self, batches: Sequence[Sequence[Window]]) -> Generator[Scores]:
        """Yield the start and end scores of each batch, without dropout; see `forward`."""
        self.eval()
        if self.config.global_tokens:  # all windows of a question are one batch, which uses all threads
            yield from map(self._score, batches)
            return
        yield from each_batch(self._score, batches, self.device)

    @torch.inference_mode()
    def _score(self, batch: Sequence[Window]) -> Scores:
        scores: Scores = self(*(t.to(self.device) for t in padded(batch))).cpu().numpy()
        return scores

    @property
    def marks_shared(self) -> bool:
        """Whether the encoder has token types for wordpieces that question and text share."""
        return int(self.encoder_config.get("type_vocab_size", 0)) > 3

    def windows(
        self, question: str, texts: Sequence[Text], layout: ReaderLayout | None = None
    ) -> list[Window]:
        """Return the windows of these texts, in the reader's layout unless `layout` is set."""
        layout = layout or self.config.layout
        return windows(question, texts, self.tokenizer, layout, mark_shared=self.marks_shared)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.spans.weight.device

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, readable: torch.Tensor
    ) -> torch.Tensor:
        """Return start and end scores `(2, n, length) float32`; -inf at positions that are not `readable`."""
        types = token_types(self.encoder_config, segments)
        states = self.encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        scores = self.spans(states.to(self.spans.weight.dtype)).float().permute(2, 0, 1)
        return scores.masked_fill(~readable, -torch.inf)

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json; `int8` stores weights in 8 bits."""
        config = {
            **self.encoder_config,
            "architectures": ["SpanReader"],
            "reader": asdict(self.config),
        }
        save_model(folder, self, config, int8=int8)

    @staticmethod
    def open(folder: Path, device: str, dtype: str) -> SpanReader:
        """Load a reader onto a device, with its encoder in the number format of `pick_dtype`."""
        return for_inference(SpanReader.load(folder), device, dtype)

    @staticmethod
    def load(folder: str | Path) -> SpanReader:
        """Load a reader that `save_pretrained` wrote.

        :raises ModelError: the folder has another layout.
        """
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        if "reader" not in raw:
            raise ModelError(
                "the model is not a reader: its config.json has no `reader` object",
                where=str(folder),
                remedy=remedy("set {} to the output of {}", Option("reader"), Command("sparta train-reader")),
            )
        config = ReaderConfig.from_dict(raw.pop("reader"), str(folder / "config.json"))
        check_length(config.layout.max_length, raw, folder)
        reader = SpanReader(blank_encoder(raw, str(folder)), load_tokenizer(folder), config)
        return with_weights(reader, load_state(folder / "model.safetensors"), str(folder))

    @staticmethod
    def from_encoder(name: str | Path, config: ReaderConfig) -> SpanReader:
        """Return an untrained reader on an encoder: a folder, a hub id, a SPARTA model, or another reader."""
        shipped = is_shipped(name, "reader")
        if model_folder := reader_folder(name) if shipped else folder_with("reader", local_folder(name)):
            old_reader = SpanReader.load(model_folder)
            reader = SpanReader(_plain_encoder(old_reader), old_reader.tokenizer, config)
            if isinstance(old_reader.encoder, FusedEncoder):
                if old_reader.config.global_tokens != config.global_tokens:
                    raise InputError(
                        f"the start reader has {old_reader.config.global_tokens} global tokens,"
                        f" but the option says {config.global_tokens}",
                        where=str(name),
                        remedy=remedy(
                            "set {} as in the start reader, or start from an encoder", Option("global_tokens")
                        ),
                    )
                reader.encoder.load_state_dict(old_reader.encoder.state_dict())
            reader.spans.load_state_dict(old_reader.spans.state_dict())
            return reader
        if model_folder := sparta_folder(name):
            model = SpartaModel.load(model_folder)
            return SpanReader(model.encoder, model.tokenizer, config)
        return SpanReader(as_plain_bert(load_encoder(name)), load_tokenizer(name), config)


def padded(batch: Sequence[ReaderInput]) -> tuple[torch.Tensor, ...]:
    """Return ids, attention mask, segments and the mask of possible answer positions, each `(n, length)`."""
    ids, mask, segments = pad_inputs(batch)
    return ids, mask, segments, torch.from_numpy(answer_mask(batch, ids.shape[1]))


def _plain_encoder(reader: SpanReader) -> nn.Module:
    return reader.encoder.encoder if isinstance(reader.encoder, FusedEncoder) else reader.encoder
