"""Bi-encoders: a question is one vector, a passage one, or a few (Poly-Encoder)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from dense.models.config import PASSAGE, DenseConfig
from dense.models.experts import Routed, set_mask, set_side, specialize
from dense.models.skill_config import FEED_FORWARD, SPAN
from dense.models.span_head import SpanHead
from sparta.base.checks import path_of
from sparta.base.records import Advance, Passage
from sparta.models.query_encoder import load_tokenizer
from sparta.neural.backbones import blank_encoder, encoder_config, encoder_size, load_encoder, token_types
from sparta.neural.checkpoint import load_state, read_json, save_model, with_weights
from sparta.neural.encoding import (
    GPU_TOKENS,
    LARGEST_BATCH,
    arithmetic,
    each_batch,
    length_sorted_batches,
    one_thread,
    tokens_at_once,
    with_halving,
)
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs, pooled_positions, shared_inputs
from sparta.neural.stored import check_length

START_SCALE = 20.0
FEW = 4
Vectors = npt.NDArray[np.float32]


class DenseModel(nn.Module):
    """Two encoders (or one for both sides) and a temperature.

    Vectors have length 1 and are multiplied by the square root of the learned scale, so that the dot product
    of two is their score.
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: DenseConfig) -> None:
        super().__init__()
        self.tokenizer, self.config = tokenizer, config
        self.passage_encoder = encoder
        self._encoder_config = encoder_config(encoder)
        self._experts: list[Routed] = []
        if config.routing:
            placement = config.skills.placement if config.skills else FEED_FORWARD
            self._experts = specialize(encoder, config.experts, config.routing, config.period, placement)
        self.question_encoder = encoder if config.shared else copy.deepcopy(encoder)
        self.log_scale = nn.Parameter(torch.tensor(math.log(START_SCALE)))
        width, _ = encoder_size(encoder)
        self.codes = nn.Parameter(torch.randn(config.codes, width) / width**0.5) if config.codes else None
        self.spans = SpanHead(width) if config.skills and SPAN in config.skills.skills else None

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def questions(self, texts: Sequence[str], task: str = "") -> torch.Tensor:
        """`(n, width)`; of a task that the model knows, as it reads its questions."""
        inputs = [self.config.question_input(text, self.tokenizer, task) for text in texts]
        set_side(self._experts, self.config.question_expert(task))
        return self._pooled(self.question_encoder, inputs, codes=False)[:, 0]

    def passages(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """`(n, vectors, width)`; neighbours of the same tokens are read once."""
        set_side(self._experts, PASSAGE)
        return self._pooled(self.passage_encoder, inputs, codes=self.codes is not None)

    def vectors(self, expert: int, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """`(n, width)`: the vectors of texts as this expert of the shared encoder reads them."""
        set_side(self._experts, expert)
        return self._pooled(self.passage_encoder, inputs, codes=False)[:, 0]

    def states(self, expert: int, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, list[int]]:
        """Token states `(rows, length, width) float32` by this expert, and in which row each input stands.

        Neighbours of the same tokens share a row.
        """
        set_side(self._experts, expert)
        states, rows, _ = self._read(self.passage_encoder, inputs)
        return states.float(), rows

    def entropy(self) -> torch.Tensor:
        """Mean over the specialized layers of eq. 5 of TASER, for what was read last; 0 without routers."""
        learned = [one.entropy for one in self._experts if one.router is not None]
        return torch.stack(learned).mean() if learned else torch.zeros((), device=self.device)

    def score(self, questions: torch.Tensor, passages: torch.Tensor) -> torch.Tensor:
        """`(n_questions, n_passages)`: dot products; of several vectors, weighed by their own softmax."""
        products = torch.einsum("qw,pvw->qpv", questions, passages)
        if products.shape[2] == 1:
            return products[:, :, 0]
        return (products.softmax(2) * products).sum(2)

    def _read(
        self, encoder: nn.Module, inputs: Sequence[EncoderInput]
    ) -> tuple[torch.Tensor, list[int], int]:
        rows = shared_inputs(inputs)
        distinct = [item for i, item in enumerate(inputs) if i == 0 or rows[i] != rows[i - 1]]
        ids, mask, segments = (t.to(self.device) for t in pad_inputs(distinct))
        set_mask(self._experts, mask)
        types = token_types(self._encoder_config, segments)
        states = encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        return states, rows, ids.shape[1]

    def _pooled(self, encoder: nn.Module, inputs: Sequence[EncoderInput], *, codes: bool) -> torch.Tensor:
        states, rows, length = self._read(encoder, inputs)
        if self.config.pooling == "cls":
            return self.scaled(states[torch.tensor(rows, device=self.device), :1].float())
        positions, _ = pooled_positions(inputs, rows, length, pool_special=False)
        sizes = torch.tensor([max(1, i.lead + i.end - i.start) for i in inputs], device=self.device)
        own = functional.embedding(positions.to(self.device), states.flatten(0, 1)).float()
        shown = torch.arange(own.shape[1], device=self.device)[None, :] < sizes[:, None]
        if codes and self.codes is not None:
            attention = torch.einsum("cw,npw->ncp", self.codes, own).masked_fill(~shown[:, None], -torch.inf)
            vectors = attention.softmax(2) @ own
        else:
            vectors = ((own * shown[:, :, None]).sum(1) / sizes[:, None])[:, None]
        return self.scaled(vectors)

    def scaled(self, vectors: torch.Tensor) -> torch.Tensor:
        """`(…, width)` as they are compared: of length 1 times the root of the scale, or as they come."""
        if not self.config.cosine:
            return vectors
        return functional.normalize(vectors, dim=-1) * (self.log_scale / 2).exp()

    # ------------------------------------------------------------------ whole collections

    @torch.inference_mode()
    def encode_questions(self, texts: Sequence[str], task: str = "") -> Vectors:
        """`(n, width) float32`; a few questions take one thread. `task` as in `questions`."""
        self.eval()
        with one_thread() if len(texts) <= FEW else nullcontext():
            parts = [self.questions(texts[i : i + 64], task).float().cpu() for i in range(0, len(texts), 64)]
        return torch.cat(parts).numpy()

    @torch.inference_mode()
    def encode_passages(
        self,
        passages: Sequence[Passage],
        dtype: str = "auto",
        *,
        advance: Advance | None = None,
        on_read: Callable[[int, int, int], object] | None = None,
    ) -> Vectors:
        """`(n, vectors, width) float32`; of a passage that needs several windows, the first.

        :param dtype: arithmetic of the encoder, as `pick_dtype` knows it
        :param advance: called with the number of passages of each batch
        :param on_read: called with how many passages were longer than the model reads at once, and how many
            wordpieces of all passages are read, of how many
        """
        self.eval()
        windows = self.config.layout.windows_of(passages, self.tokenizer)
        inputs = [own[0] for own in windows]
        if on_read:
            shared = self.config.layout.overlap
            whole = sum(w.end - w.start for own in windows for w in own)
            whole -= sum(shared * (len(own) - 1) for own in windows)
            on_read(sum(len(own) > 1 for own in windows), sum(i.end - i.start for i in inputs), whole)
        rows = np.array(shared_inputs(inputs))
        places = np.arange(len(inputs))
        groups = np.split(places, np.flatnonzero(np.diff(rows)) + 1) if inputs else []
        width, _ = encoder_size(self.passage_encoder)
        found = np.zeros((len(inputs), max(1, self.config.codes), width), np.float32)
        with arithmetic(self.device, dtype):
            budget = tokens_at_once(GPU_TOKENS, self.device)
            cut = length_sorted_batches([len(inputs[g[0]].ids) for g in groups], budget, LARGEST_BATCH)
            batches = [np.concatenate([groups[i] for i in chosen]) for chosen in cut]
            with closing(self._vectors_of([[inputs[i] for i in batch] for batch in batches])) as read:
                for batch, vectors in zip(batches, read, strict=True):
                    found[batch] = vectors
                    if advance:
                        advance(len(batch))
        return found

    def _vectors_of(self, batches: Sequence[Sequence[EncoderInput]]) -> Generator[Vectors]:
        """Read each batch; routers, which keep what they saw last, see one at a time."""

        @torch.inference_mode()
        def vectors(batch: Sequence[EncoderInput]) -> list[Vectors]:
            return [self.passages(batch).float().cpu().numpy()]

        def read(batch: Sequence[EncoderInput]) -> Vectors:
            return np.concatenate(with_halving(vectors, batch))

        routed = any(one.router is not None for one in self._experts)
        yield from map(read, batches) if routed else each_batch(read, batches, self.device)

    # ------------------------------------------------------------------ on disk

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json."""
        config = {**self._encoder_config, "architectures": ["DenseModel"], "dense": self.config.as_dict()}
        twice = "question_encoder." if self.config.shared else ""
        save_model(folder, self, config, without=twice, int8=int8)

    @staticmethod
    def load(folder: str | Path) -> DenseModel:
        """Return a model that `save_pretrained` wrote."""
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        config = DenseConfig.from_dict(raw.pop("dense", None), str(folder / "config.json"))
        check_length(max(config.layout.max_length, config.question_length), raw, str(folder))
        model = DenseModel(blank_encoder(raw, str(folder)), load_tokenizer(folder), config)
        state = load_state(folder / "model.safetensors")
        if config.shared:
            names = [k for k in state if k.startswith("passage_encoder.")]
            state |= {k.replace("passage_encoder.", "question_encoder.", 1): state[k] for k in names}
        return with_weights(model, state, str(folder))

    @staticmethod
    def like(source: DenseModel, config: DenseConfig) -> DenseModel:
        """Return a model of this form on an encoder of the source's sizes, its weights still to be filled."""
        return DenseModel(blank_encoder(source._encoder_config, "config.json"), source.tokenizer, config)

    @staticmethod
    def from_encoder(name: str | Path, config: DenseConfig | None = None) -> DenseModel:
        """Return a new, untrained model on a pretrained encoder (folder or hub id)."""
        return DenseModel(load_encoder(name), load_tokenizer(name), config or DenseConfig())
