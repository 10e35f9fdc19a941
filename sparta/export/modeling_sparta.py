"""A SPARTA model as sentence-transformers modules. Exported folders contain this file."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers.base.modules import InputModule, Router
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

CHUNK = 4096
"""The number of terms whose logits are in memory at once."""
MOST_OF_SYMBOL = 2
"""How often a term without letter or digit counts in a query."""
MEANINGFUL = "#%&@/*"
"""Punctuation that a query may consist of, as of letters, digits and symbols."""


class SpartaRouter(Router):
    """Routes queries to the query module and passages to the document module.

    A saved folder refers to this file by its name, so the folder can be moved.
    """

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Save both modules and their routes."""
        super().save(output_path, *args, **kwargs)
        path = Path(output_path) / self.config_file_name
        config = json.loads(path.read_text(encoding="utf-8"))
        module_name = Path(__file__).stem
        config["types"] = {
            module_path: f"{module_name}.{class_name.rpartition('.')[2]}"
            for module_path, class_name in config["types"].items()
        }
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class SpartaModule(InputModule):
    """Base class of both modules, with their tokenizer, files and number of terms.

    The tokenizer reads special tokens such as `[SEP]` as plain text.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        super().__init__()
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.backend, self.size = tokenizer, size
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer
        )  # the attribute that sentence-transformers expects

    def pieces(self, inputs: Sequence[str], prompt: str | None) -> list[list[int]]:
        """Return the wordpiece ids of each text."""
        self.backend.encode_special_tokens = (
            True  # "[SEP]" in a text is five characters; copying a tokenizer resets this
        )
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
        """Load a saved module from a folder or the hub."""
        location: dict[str, Any] = {"model_name_or_path": model_name_or_path, "subfolder": subfolder}
        hub_arguments = ("token", "cache_folder", "revision", "local_files_only")
        location |= {name: kwargs[name] for name in hub_arguments if name in kwargs}
        tokenizer = Tokenizer.from_file(str(cls.load_file_path(filename="tokenizer.json", **location)))
        return cls.load_torch_weights(model=cls(tokenizer, **cls.load_config(**location)), **location)


class SpartaQuery(SpartaModule):
    """Represents a query as a bag of weighted terms, without a network.

    A term counts at each occurrence or, with `once`, only once per query. A term without letter or digit
    counts twice at most. A query of punctuation has no terms.
    """

    config_keys = ["size", "once"]  # noqa: RUF012 (as in sentence-transformers)

    def __init__(self, tokenizer: Tokenizer, size: int, once: bool) -> None:
        super().__init__(tokenizer, size)
        self.once = once
        self.weight = nn.Parameter(torch.ones(size), requires_grad=False)
        symbols = [not any(map(str.isalnum, tokenizer.id_to_token(i) or "a")) for i in range(size)]
        most = torch.full((size,), torch.inf).masked_fill(torch.tensor(symbols), MOST_OF_SYMBOL)
        self.register_buffer("most", most, persistent=False)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Convert queries to padded wordpiece ids."""
        return padded(self.pieces([text if has_meaning(text) else "" for text in inputs], prompt))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding (n, terms)` to the features."""
        counts = counted(features["input_ids"], features["attention_mask"], self.size)
        counts = torch.minimum(counts, self.most)
        features["sentence_embedding"] = (counts.clamp_max(1) if self.once else counts) * self.weight
        return features


def has_meaning(text: str) -> bool:
    """Return whether a query has a letter, a digit or a symbol."""
    return any(unicodedata.category(c)[0] in "LNS" or c in MEANINGFUL for c in text)


class SpartaDocument(SpartaModule):
    """Computes a passage's weight for every term.

    The weight is that of SPARTA, eq. 4 to 6. Long passages are read in overlapping windows.

    :param encoder: the encoder's configuration
    :param arguments: further arguments for creating the encoder
    :param segment: the segment id of the passage's tokens, for encoders with segments
    :param lexical: k1, b and mean_length for the weight of term occurrences in the passage, or None
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
        """Convert passages to padded windows of wordpiece ids; `owner` numbers the passage of each window."""
        cls_id, sep_id = self.backend.encode("", add_special_tokens=True).ids
        window_length = self.max_length - 2
        step = max(1, window_length - self.overlap)
        windows, owner = [], []
        for number, ids in enumerate(self.pieces(inputs, prompt)):
            for start in range(0, len(ids) - self.overlap, step) if len(ids) > window_length else [0]:
                windows.append([cls_id, *ids[start : start + window_length], sep_id])
                owner.append(number)
        return {**padded(windows), "owner": torch.tensor(owner)}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding (n, terms)` to the features."""
        ids, mask, owner = features["input_ids"], features["attention_mask"], features["owner"]
        text_mask = mask.clone()
        text_mask[:, 0] = 0
        text_mask[torch.arange(len(text_mask)), mask.sum(1) - 1] = 0
        segment_argument = (
            {"token_type_ids": text_mask * self.segment}
            if self.encoder.get("type_vocab_size", 0) >= 2
            else {}
        )
        states = self.model(input_ids=ids, attention_mask=mask, **segment_argument).last_hidden_state
        weights = self.pooled(states, mask if self.pool_special else text_mask)
        if self.lexical:
            counts = saturated(counted(ids, text_mask, self.size), **self.lexical)
            weights = weights + self.gains.clamp_min(0) * counts
        weights = torch.where(self.allowed, weights, torch.zeros_like(weights))
        sizes = torch.bincount(owner).tolist()
        features["sentence_embedding"] = torch.stack(
            [passage_weights.amax(0) for passage_weights in weights.split(sizes)]
        )
        return features

    def pooled(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the weights of all terms, `(n, terms)`: the maximum over the positions where `mask` is 1.

        Rows without such positions are 0.
        """
        hidden = ~mask.bool()[:, :, None]
        best = torch.cat(
            [
                (states @ term_chunk.T).masked_fill(hidden, -torch.inf).amax(1)
                for term_chunk in self.terms.split(CHUNK)
            ],
            1,
        )
        weights = torch.relu(best * self.scale + self.bias)
        for _ in range(self.log_count):
            weights = torch.log1p(weights)
        return torch.where(mask.any(1)[:, None], weights, torch.zeros_like(weights))


def padded(rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Return padded `input_ids` and `attention_mask`, both `(n, longest)`."""
    longest = max(map(len, rows), default=0)
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.long)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=torch.long)
    return {"input_ids": ids, "attention_mask": mask}


def counted(ids: torch.Tensor, mask: torch.Tensor, size: int) -> torch.Tensor:
    """Return the number of occurrences of each term where the mask is 1, `(n, size) float32`."""
    return torch.zeros(len(ids), size, device=ids.device).scatter_add_(1, ids, mask.float())


def saturated(counts: torch.Tensor, mean_length: float, k1: float, b: float) -> torch.Tensor:
    """Return term counts after BM25's saturation, from 0 to 1; a row's length is the sum of its counts."""
    return counts / (counts + k1 * (1 - b + b * counts.sum(1, keepdim=True) / mean_length))
