"""A SPARTA model as modules of sentence-transformers: what an exported folder runs, without sparta."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers.base.modules import InputModule, Router
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

CHUNK = 4096
"""Terms whose logits are in memory at once."""


class SpartaRouter(Router):
    """Questions to one module, passages to the other; a saved folder names this file, wherever it lies."""

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write both modules, and which is which."""
        super().save(output_path, *args, **kwargs)
        path = Path(output_path) / self.config_file_name
        config = json.loads(path.read_text(encoding="utf-8"))
        own = Path(__file__).stem
        config["types"] = {part: f"{own}.{kind.rpartition('.')[2]}" for part, kind in config["types"].items()}
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class SpartaModule(InputModule):
    """What both sides share: a tokenizer that reads every text as plain text, files, the number of terms."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        super().__init__()
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.backend, self.size = tokenizer, size
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer
        )  # what sentence-transformers asks

    def pieces(self, inputs: Sequence[str], prompt: str | None) -> list[list[int]]:
        """Return the wordpieces of each text."""
        self.backend.encode_special_tokens = True  # "[SEP]" in a text is five characters; copies forget it
        texts = [f"{prompt or ''}{text}" for text in inputs]
        return [encoded.ids for encoded in self.backend.encode_batch(texts, add_special_tokens=False)]

    def get_embedding_dimension(self) -> int:
        """Return the number of terms."""
        return self.size

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write tokenizer.json, the weights and config.json."""
        self.backend.save(str(Path(output_path) / "tokenizer.json"))
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:  # type: ignore[override]
        """Read what `save` wrote, from a folder or the hub."""
        place: dict[str, Any] = {"model_name_or_path": model_name_or_path, "subfolder": subfolder}
        hub = ("token", "cache_folder", "revision", "local_files_only")
        place |= {name: kwargs[name] for name in hub if name in kwargs}
        tokenizer = Tokenizer.from_file(str(cls.load_file_path(filename="tokenizer.json", **place)))
        return cls.load_torch_weights(model=cls(tokenizer, **cls.load_config(**place)), **place)


class SpartaQuery(SpartaModule):
    """A question as a bag of terms: what each counts, every time it occurs, or once. No network."""

    config_keys = ["size", "once"]  # noqa: RUF012 (as their own modules have it)

    def __init__(self, tokenizer: Tokenizer, size: int, once: bool) -> None:
        super().__init__(tokenizer, size)
        self.once = once
        self.weight = nn.Parameter(torch.ones(size), requires_grad=False)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Questions to padded wordpieces."""
        return padded(self.pieces(inputs, prompt))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding (n, terms)`."""
        counts = counted(features["input_ids"], features["attention_mask"], self.size)
        features["sentence_embedding"] = (counts.clamp_max(1) if self.once else counts) * self.weight
        return features


class SpartaDocument(SpartaModule):
    """A passage's weight for every term (SPARTA, eq. 4 to 6). A long one is read in overlapping windows.

    :param encoder: the encoder's configuration, `arguments` what else makes it
    :param segment: of the passage's tokens, where the encoder has segments
    :param lexical: k1, b and mean_length of what a term's occurrences in the passage add, or None
    """

    config_keys = [  # noqa: RUF012
        *("size", "encoder", "arguments", "max_length", "overlap", "segment"),
        *("pool_special", "log_count", "lexical"),
    ]

    def __init__(
        self,
        tokenizer: Tokenizer,
        size: int,
        *,
        encoder: dict[str, Any],
        arguments: dict[str, Any],
        max_length: int,
        overlap: int,
        segment: int,
        pool_special: bool,
        log_count: int,
        lexical: dict[str, float] | None,
    ) -> None:
        super().__init__(tokenizer, size)
        self.encoder, self.arguments, self.lexical = encoder, arguments, lexical
        self.max_length, self.overlap, self.segment = max_length, overlap, segment
        self.pool_special, self.log_count = pool_special, log_count
        self.max_seq_length = max_length
        self.model = AutoModel.from_config(AutoConfig.for_model(**encoder), **arguments)
        self.terms = nn.Parameter(torch.zeros(size, self.model.config.hidden_size))
        self.scale, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self.gains = nn.Parameter(torch.zeros(size))
        self.register_buffer("allowed", torch.ones(size, dtype=torch.bool))

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Passages to padded windows of wordpieces; `owner` says whose each window is."""
        first, last = self.backend.encode("", add_special_tokens=True).ids
        room = self.max_length - 2
        step = max(1, room - self.overlap)
        windows, owner = [], []
        for number, ids in enumerate(self.pieces(inputs, prompt)):
            for start in range(0, len(ids) - self.overlap, step) if len(ids) > room else [0]:
                windows.append([first, *ids[start : start + room], last])
                owner.append(number)
        return {**padded(windows), "owner": torch.tensor(owner)}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding (n, terms)`."""
        ids, mask, owner = features["input_ids"], features["attention_mask"], features["owner"]
        own = mask.clone()
        own[:, 0] = 0
        own[torch.arange(len(own)), mask.sum(1) - 1] = 0
        more = {"token_type_ids": own * self.segment} if self.encoder.get("type_vocab_size", 0) >= 2 else {}
        states = self.model(input_ids=ids, attention_mask=mask, **more).last_hidden_state
        weights = self.pooled(states, mask if self.pool_special else own)
        if self.lexical:
            counts = saturated(counted(ids, own, self.size), **self.lexical)
            weights = weights + self.gains.clamp_min(0) * counts
        weights = torch.where(self.allowed, weights, torch.zeros_like(weights))
        sizes = torch.bincount(owner).tolist()
        features["sentence_embedding"] = torch.stack([part.amax(0) for part in weights.split(sizes)])
        return features

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the maximum over the positions of the mask, `(n, terms)`; nothing where it has none."""
        hidden = ~mask.bool()[:, :, None]
        best = torch.cat(
            [(states @ part.T).masked_fill(hidden, -torch.inf).amax(1) for part in self.terms.split(CHUNK)], 1
        )
        weights = torch.relu(best * self.scale + self.bias)
        for _ in range(self.log_count):
            weights = torch.log1p(weights)
        return torch.where(mask.any(1)[:, None], weights, torch.zeros_like(weights))


def padded(rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Return `input_ids` and `attention_mask`, `(n, longest)`."""
    longest = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.long)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=torch.long)
    return {"input_ids": ids, "attention_mask": mask}


def counted(ids: torch.Tensor, mask: torch.Tensor, size: int) -> torch.Tensor:
    """Return how often each term occurs where the mask is 1, `(n, size) float32`."""
    return torch.zeros(len(ids), size, device=ids.device).scatter_add_(1, ids, mask.float())


def saturated(counts: torch.Tensor, mean_length: float, k1: float, b: float) -> torch.Tensor:
    """Return occurrences as BM25 saturates them, between 0 and 1; a row's length is their sum."""
    return counts / (counts + k1 * (1 - b + b * counts.sum(1, keepdim=True) / mean_length))
