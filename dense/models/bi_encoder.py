"""Bi-encoders: encode a question into one vector, and a passage into one or several (Poly-Encoder)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from dense.models.batches import OnRead, Places, encoded_inputs, first_windows, padded_places
from dense.models.config import PASSAGE, DenseConfig
from dense.models.experts import Chosen, Routed, set_mask, set_side, specialize
from dense.models.skill_config import ENCODER, FEED_FORWARD, SPAN
from dense.models.span_head import SpanHead
from dense.models.span_scores import SpanWeights
from sparta.base.checks import path_of
from sparta.base.records import Advance, Passage
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.neural.backbones import blank_encoder, encoder_config, encoder_width, load_encoder, token_types
from sparta.neural.batches import GPU_TOKENS, distinct_inputs, pooled_positions
from sparta.neural.checkpoint import load_state, save_model, with_weights
from sparta.neural.encoding import arithmetic, each_batch, one_thread, tokens_at_once, with_halving
from sparta.neural.inputs import EncoderInput
from sparta.neural.pooling import pad_inputs, tensors
from sparta.neural.stored import check_length, read_json

START_SCALE = 20.0
FEW = 4
Vectors = npt.NDArray[np.float32]


class DenseModel(nn.Module):
    """A question encoder, a passage encoder (maybe the same one), and a learned scale.

    With `config.cosine`, vectors have length 1, multiplied by the square root of the scale. The score of a
    question and a passage is the dot product of their vectors.
    """

    def __init__(self, encoder: nn.Module, tokenizer: Tokenizer, config: DenseConfig) -> None:
        super().__init__()
        self.tokenizer, self.config = tokenizer, config
        self._encoder_config = encoder_config(encoder)
        self._experts: list[Routed] = []
        placement = config.skills.placement if config.skills else FEED_FORWARD
        if placement == ENCODER:
            encoder = Chosen(encoder, config.experts)
            self._experts = [encoder]
        elif config.routing:
            self._experts = specialize(encoder, config.experts, config.routing, config.period, placement)
        self.passage_encoder = encoder
        self.question_encoder = encoder if config.shared else copy.deepcopy(encoder)
        self.log_scale = nn.Parameter(torch.tensor(math.log(START_SCALE)))
        width = encoder_width(encoder)
        self.codes = nn.Parameter(torch.randn(config.codes, width) / width**0.5) if config.codes else None
        self.spans = SpanHead(width) if config.skills and SPAN in config.skills.skills else None

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def questions(self, texts: Sequence[str], task: str = "") -> torch.Tensor:
        """Return the vectors of questions, `(n, width)`.

        :param task: the task of the questions, if the model knows tasks: it chooses the marker and the expert
        """
        inputs = [self.config.question_input(text, self.tokenizer, task) for text in texts]
        set_side(self._experts, self.config.question_expert(task))
        return self._pooled(self.question_encoder, inputs, codes=False)[:, 0]

    def passages(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors of passages, `(n, vectors, width)`.

        Adjacent inputs with the same tokens are encoded once.
        """
        set_side(self._experts, PASSAGE)
        return self._pooled(self.passage_encoder, inputs, codes=self.codes is not None)

    def vectors(self, expert: int, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors of texts, `(n, width)`, from the shared encoder with this expert."""
        set_side(self._experts, expert)
        return self._pooled(self.passage_encoder, inputs, codes=False)[:, 0]

    def states(self, expert: int, inputs: Sequence[EncoderInput]) -> tuple[torch.Tensor, list[int]]:
        """Return token states `(rows, length, width) float32` from this expert, and the row of each input.

        Adjacent inputs with the same tokens share a row.
        """
        set_side(self._experts, expert)
        states, rows, _ = self._read(self.passage_encoder, inputs)
        return states.float(), rows

    def entropy(self) -> torch.Tensor:
        """Return the mean entropy of the routers' last choices (TASER, eq. 5); 0 without routers."""
        learned = [experts.entropy for experts in self._experts if experts.router is not None]
        return torch.stack(learned).mean() if learned else torch.zeros((), device=self.device)

    def score(self, questions: torch.Tensor, passages: torch.Tensor) -> torch.Tensor:
        """Return the scores `(n_questions, n_passages)`: dot products of vectors.

        The dot products with several vectors of a passage are summed, weighted by their softmax.
        """
        products = torch.einsum("qw,pvw->qpv", questions, passages)
        if products.shape[2] == 1:
            return products[:, :, 0]
        return (products.softmax(2) * products).sum(2)

    def _read(
        self, encoder: nn.Module, inputs: Sequence[EncoderInput]
    ) -> tuple[torch.Tensor, list[int], int]:
        distinct, rows = distinct_inputs(inputs)
        ids, mask, segments = (tensor.to(self.device) for tensor in pad_inputs(distinct))
        set_mask(self._experts, mask)
        types = token_types(self._encoder_config, segments)
        states = encoder(input_ids=ids, attention_mask=mask, **types).last_hidden_state
        return states, rows, ids.shape[1]

    def _pooled(self, encoder: nn.Module, inputs: Sequence[EncoderInput], *, codes: bool) -> torch.Tensor:
        states, rows, length = self._read(encoder, inputs)
        if self.config.pooling == "cls":
            return self.scaled(states[torch.tensor(rows, device=self.device), :1].float())
        positions, _ = tensors(pooled_positions(inputs, rows, length, pool_special=False))
        sizes = torch.tensor([max(1, i.lead + i.end - i.start) for i in inputs], device=self.device)
        token_states = functional.embedding(positions.to(self.device), states.flatten(0, 1)).float()
        is_pooled = torch.arange(token_states.shape[1], device=self.device)[None, :] < sizes[:, None]
        if codes and self.codes is not None:
            attention = torch.einsum("cw,npw->ncp", self.codes, token_states).masked_fill(
                ~is_pooled[:, None], -torch.inf
            )
            vectors = attention.softmax(2) @ token_states
        else:
            vectors = ((token_states * is_pooled[:, :, None]).sum(1) / sizes[:, None])[:, None]
        return self.scaled(vectors)

    def scaled(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale vectors `(…, width)` to the root of the scale as their length, if `config.cosine`."""
        if not self.config.cosine:
            return vectors
        return functional.normalize(vectors, dim=-1) * (self.log_scale / 2).exp()

    # ------------------------------------------------------------------ whole collections

    @torch.inference_mode()
    def encode_questions(self, texts: Sequence[str], task: str = "") -> Vectors:
        """Return the vectors of questions without gradients, `(n, width) float32`.

        A few questions use one thread.

        :param task: as in `questions`
        """
        self.eval()
        with one_thread() if len(texts) <= FEW else nullcontext():
            parts = [self.questions(texts[i : i + 64], task).float().cpu() for i in range(0, len(texts), 64)]
        return torch.cat(parts).numpy()

    def encode_passages(
        self,
        passages: Sequence[Passage],
        dtype: str = "auto",
        *,
        advance: Advance | None = None,
        on_read: OnRead | None = None,
    ) -> Vectors:
        """Return the vectors of passages without gradients, `(n, vectors, width) float32`.

        Of a passage longer than one window, only the first window is encoded.

        :param dtype: arithmetic of the encoder, as `pick_dtype` takes it
        :param advance: called with the number of passages of each batch
        :param on_read: called with counts of wordpieces, see `OnRead`
        """
        inputs = first_windows(passages, self.config.layout, self.tokenizer, on_read)
        shape = max(1, self.config.codes), self.width
        return self._encoded(inputs, shape, self.passages, dtype, advance)

    @property
    def width(self) -> int:
        """The size of a vector."""
        return encoder_width(self.passage_encoder)

    def encode_inputs(self, expert: int, inputs: Sequence[EncoderInput], dtype: str = "auto") -> Vectors:
        """Return the vectors of texts without gradients, `(n, width) float32`; see `vectors`."""

        def read(batch: Sequence[EncoderInput]) -> torch.Tensor:
            return self.vectors(expert, batch)[:, None]

        return self._encoded(inputs, (1, self.width), read, dtype)[:, 0]

    def encode_states(
        self, expert: int, inputs: Sequence[EncoderInput], places: Places, dtype: str = "auto"
    ) -> Vectors:
        """Return the states at some positions of each text without gradients, `(n, most, width) float32`.

        :param places: returns the positions of a text; a text with fewer repeats its first state
        """
        most = max((len(places(item)) for item in inputs), default=0)

        def read(batch: Sequence[EncoderInput]) -> torch.Tensor:
            states, rows = self.states(expert, batch)
            positions = torch.from_numpy(padded_places(batch, places, most)).to(states.device)
            return states[torch.tensor(rows, device=states.device)[:, None], positions]

        return self._encoded(inputs, (most, self.width), read, dtype)

    def scaled_vectors(self, vectors: Vectors) -> Vectors:
        """Scale vectors as `scaled` does."""
        scaled: Vectors = self.scaled(torch.from_numpy(vectors).to(self.device)).detach().cpu().numpy()
        return scaled

    def span_weights(self) -> SpanWeights | None:
        """Return the weights that score entity spans; None without the skill."""
        return self.spans.without_torch() if self.spans is not None else None

    @torch.inference_mode()
    def _encoded(
        self,
        inputs: Sequence[EncoderInput],
        shape: tuple[int, int],
        read: Callable[[Sequence[EncoderInput]], torch.Tensor],
        dtype: str,
        advance: Advance | None = None,
    ) -> Vectors:
        """Apply a function to batches of inputs; return its results in the order of the inputs.

        Few inputs use one thread. With routers, which store their last choices, batches do not run in
        parallel.
        """
        self.eval()

        @torch.inference_mode()
        def vectors(batch: Sequence[EncoderInput]) -> list[Vectors]:
            return [read(batch).float().cpu().numpy()]

        def halving(batch: Sequence[EncoderInput]) -> Vectors:
            return np.concatenate(with_halving(vectors, batch))

        def encode_batches(batches: Sequence[Sequence[EncoderInput]]) -> Generator[Vectors]:
            routed = any(experts.router is not None for experts in self._experts)
            yield from map(halving, batches) if routed else each_batch(halving, batches, self.device)

        budget = tokens_at_once(GPU_TOKENS, self.device)
        with arithmetic(self.device, dtype), one_thread() if len(inputs) <= FEW else nullcontext():
            return encoded_inputs(inputs, shape, budget, encode_batches, advance)

    # ------------------------------------------------------------------ on disk

    def save_pretrained(self, folder: str | Path, *, int8: bool = False) -> None:
        """Write config.json, model.safetensors and tokenizer.json."""
        config = {**self._encoder_config, "architectures": ["DenseModel"], "dense": self.config.as_dict()}
        duplicate_prefix = "question_encoder." if self.config.shared else ""
        save_model(folder, self, config, without=duplicate_prefix, int8=int8)

    @staticmethod
    def load(folder: str | Path) -> DenseModel:
        """Load a model that `save_pretrained` wrote."""
        folder = path_of(folder, "a model folder")
        raw = read_json(folder / "config.json")
        config = DenseConfig.from_dict(raw.pop("dense", None), str(folder / "config.json"))
        check_length(max(config.layout.max_length, config.question_length), raw, folder)
        model = DenseModel(blank_encoder(raw, str(folder)), load_tokenizer(folder), config)
        state = load_state(folder / "model.safetensors")
        if config.shared:
            names = [name for name in state if name.startswith("passage_encoder.")]
            state |= {name.replace("passage_", "question_", 1): state[name] for name in names}
        return with_weights(model, state, str(folder))

    @staticmethod
    def like(source: DenseModel, config: DenseConfig) -> DenseModel:
        """Return a model with a new configuration and the source's encoder sizes.

        Its weights are not initialized.
        """
        return DenseModel(blank_encoder(source._encoder_config, "config.json"), source.tokenizer, config)

    @staticmethod
    def from_encoder(name: str | Path, config: DenseConfig | None = None) -> DenseModel:
        """Return an untrained bi-encoder on a pretrained encoder (folder or hub id)."""
        return DenseModel(load_encoder(name), load_tokenizer(name), config or DenseConfig())
