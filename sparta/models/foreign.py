"""Models that others trained: BEIR's SPARTA checkpoints and sentence-transformers' inference-free encoders.

Only folders are read, and only JSON and weights in them: sentence-transformers itself is not needed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch import nn

from sparta.base.errors import ModelError
from sparta.models.config import SpartaConfig
from sparta.models.query_encoder import load_tokenizer
from sparta.models.sparse import SparseEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import load_encoder
from sparta.neural.checkpoint import from_pretrained, load_state, load_torch_file, read_json
from sparta.neural.inputs import InputLayout

logger = logging.getLogger(__name__)

BEIR_MAX_LENGTH = 500
_ROUTERS = ("Router", "Asym")
_TRANSFORMERS = ("Transformer", "MLMTransformer")
_DOCUMENT_ROUTES = ("document", "doc", "passage", "corpus")
_LOG_COUNTS = {"relu": 1, "log1p_relu": 2}
_NO_LIMIT = 512
_WITHOUT_NETWORK = "use an inference-free one, whose query side is a SparseStaticEmbedding, or a SPARTA model"


def load_beir_sparta(folder: Path, *, pool_special: bool = False) -> SparseEncoder:
    """Return a plain encoder, read as BEIR reads SPARTA checkpoints: terms are its words, without a bias.

    Title and text are joined by a space, an input has at most 500 wordpieces, segments are not used. Where we
    differ from BEIR's code:

    - BEIR takes the maximum of eq. 4 over every position of the padded batch, so that [CLS], [SEP] and
      padding count and a passage's weights depend on its neighbors. Here padding never counts, and [CLS] and
      [SEP] count with `pool_special` only (the model's configuration holds the choice).
    - BEIR drops what exceeds 500 wordpieces. Here it is encoded in further, overlapping windows.
    - BEIR keeps the 2000 strongest terms. Here that is the caller's choice (`top_k`).
    - Unused vocabulary entries, like special ones, have no weights.
    """
    encoder = load_encoder(folder)
    longest = min(BEIR_MAX_LENGTH, _positions(encoder.config))
    config = SpartaConfig(layout=_layout(longest), tied=True, pool_special=pool_special)
    return SpartaModel(encoder, load_tokenizer(folder), config).eval()


class SpladeDocumentEncoder(SparseEncoder):
    """A masked language model as document encoder: `e_t` and the bias of term t are those of its last layer.

    That layer, the decoder, is taken out of the model, which then yields the transformed hidden states; the
    product with the vocabulary is the caller's.
    """

    def __init__(
        self,
        language_model: nn.Module,
        tokenizer: Tokenizer,
        config: SpartaConfig,
        query_weights: npt.NDArray[np.float32],
    ) -> None:
        super().__init__(tokenizer, config)
        self.decoder = _take_decoder(language_model)
        self.language_model = language_model
        self._query_weights = query_weights
        self.check_vocabulary()

    @property
    def query_weights(self) -> npt.NDArray[np.float32]:
        """Return the weight table of the query side."""
        return self._query_weights

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Return what the decoder would have been given; segments are not used."""
        states: torch.Tensor = self.language_model(input_ids=ids, attention_mask=mask).logits
        return states

    def term_matrix(self) -> torch.Tensor:
        """Return the decoder's rows."""
        return self.decoder.weight

    def term_bias(self) -> torch.Tensor:
        """Return the decoder's bias, one for each term; zero if it has none."""
        return self.decoder.bias if self.decoder.bias is not None else self.decoder.weight.new_zeros(())


def load_sparse_encoder(folder: Path) -> SparseEncoder:
    """Return a sentence-transformers SparseEncoder whose query side is a weight table.

    The document side is a masked language model with max pooling. Every position that is not padding takes
    part, [CLS] and [SEP] too, and a distinct query token counts once, as in sentence-transformers. Where we
    differ:

    - Special tokens have no impacts, and no weight in a query. sentence-transformers keeps both; as a
      question is cut without [CLS] and [SEP], only [UNK] can make a difference.
    - Texts longer than the model allows are encoded in overlapping windows instead of being cut off.
    - A title is joined to its text by a space.
    - Negative query weights count as 0: an impact index adds, it cannot take away.
    """
    try:
        return _load_sparse_encoder(folder)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"expected the folder of a sentence-transformers SparseEncoder, found another form: {error!r}",
            where=str(folder),
            remedy="save the model again with a current sentence-transformers",
        ) from error


class _Module(NamedTuple):
    """One module of a saved SparseEncoder: the name of its class, and its folder."""

    name: str
    folder: Path

    def settings(self, *names: str) -> dict[str, Any]:
        """Return the first of these JSON files that is there."""
        return next((read_json(self.folder / n) for n in names if (self.folder / n).is_file()), {})


def _load_sparse_encoder(folder: Path) -> SparseEncoder:
    _check_settings(folder)
    query, document = _routes(folder)
    transformer, pooling = _document_side(folder, document)
    tokenizer = load_tokenizer(transformer.folder)
    weights = _query_weights(folder, query, tokenizer)

    from transformers import AutoModelForMaskedLM

    language_model = from_pretrained(AutoModelForMaskedLM, transformer.folder)
    config = SpartaConfig(
        layout=_layout(_longest(transformer, language_model.config)),
        tied=True,
        pool_special=True,
        log_count=_log_count(pooling),
    )
    return SpladeDocumentEncoder(language_model, tokenizer, config, weights).eval()


def _check_settings(folder: Path) -> None:
    """Refuse what would change every weight or score and has no place in our encoder."""
    settings = _Module("", folder).settings("config_sentence_transformers.json")
    prompts = settings.get("prompts") or {}
    if prompts.get("query") or prompts.get("document"):
        raise ModelError("expected a model without prompts, found some", where=str(folder))
    similarity = settings.get("similarity_fn_name")
    if similarity not in (None, "dot"):
        raise ModelError(f"expected scores by dot product, found {similarity}", where=str(folder))


def _routes(folder: Path) -> tuple[list[_Module], list[_Module]]:
    """Return the modules of the query side and of the document side."""
    path = folder / "modules.json"
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"expected a list of modules, could not read it: {error}", where=str(path)
        ) from error
    modules = [_module(folder, entry["type"], entry["path"]) for entry in listed]
    if len(modules) != 1 or modules[0].name not in _ROUTERS:
        names = _names(modules)
        if len(modules) == 2 and modules[0].name in _TRANSFORMERS and modules[1].name == "SpladePooling":
            raise _needs_network(folder, names)
        raise ModelError(f"expected one Router, found {names}", where=str(path), remedy=_WITHOUT_NETWORK)
    router = modules[0]
    settings = router.settings("router_config.json", "config.json")
    sides = {
        route: [_module(router.folder, settings["types"][key], key) for key in keys]
        for route, keys in settings["structure"].items()
    }
    document = next((sides[name] for name in _DOCUMENT_ROUTES if name in sides), None)
    if "query" not in sides or document is None:
        raise ModelError(f"expected routes query and document, found {', '.join(sides)}", where=str(folder))
    return sides["query"], document


def _module(folder: Path, kind: str, subfolder: str) -> _Module:
    if Path(subfolder).is_absolute() or ".." in Path(subfolder).parts:
        raise ModelError(f"expected modules inside the model's folder, found {subfolder}", where=str(folder))
    return _Module(kind.rpartition(".")[2], folder / subfolder)


def _names(modules: Iterable[_Module]) -> str:
    return " + ".join(m.name for m in modules) or "nothing"


def _needs_network(folder: Path, names: str) -> ModelError:
    return ModelError(
        f"this model needs a neural network at query time ({names}), which sparta does without",
        where=str(folder),
        remedy=_WITHOUT_NETWORK,
    )


def _document_side(folder: Path, modules: list[_Module]) -> tuple[_Module, _Module]:
    """Return transformer and pooling, as far as eq. 4 to 6 can express them."""
    if len(modules) != 2 or modules[0].name not in _TRANSFORMERS or modules[1].name != "SpladePooling":
        raise ModelError(
            f"expected a document side of a masked language model and SpladePooling, found {_names(modules)}",
            where=str(folder),
            remedy=_WITHOUT_NETWORK,
        )
    settings = modules[0].settings("sentence_bert_config.json")
    usual = "fill-mask" if modules[0].name == "MLMTransformer" else "feature-extraction"
    task = settings.get("transformer_task", usual)
    if task != "fill-mask":
        raise ModelError(f"expected a transformer for the task fill-mask, found {task}", where=str(folder))
    pooling = modules[1].settings("config.json").get("pooling_strategy", "max")
    if pooling != "max":
        raise ModelError(
            f"expected max pooling, found {pooling}: only a maximum has the form of eq. 4",
            where=str(modules[1].folder),
            remedy="use a model that was trained with pooling_strategy max",
        )
    return modules[0], modules[1]


def _log_count(pooling: _Module) -> int:
    activation = pooling.settings("config.json").get("activation_function", "relu")
    if activation not in _LOG_COUNTS:
        raise ModelError(
            f"expected one of the activations {', '.join(_LOG_COUNTS)}, found {activation}",
            where=str(pooling.folder),
        )
    return _LOG_COUNTS[activation]


# ---------------------------------------------------------------------- query side


def _query_weights(folder: Path, modules: list[_Module], tokenizer: Tokenizer) -> npt.NDArray[np.float32]:
    """`(vocabulary,) float32`: what a query token counts."""
    if [m.name for m in modules] != ["SparseStaticEmbedding"]:
        raise _needs_network(folder, _names(modules))
    module = modules[0]
    _check_tokenizer(module, tokenizer)
    path = module.settings("config.json").get("path")
    weights = _weights_from_json(folder, module, path, tokenizer) if path else _stored_weights(module)
    if weights.shape != (tokenizer.get_vocab_size(),) or not np.isfinite(weights).all():
        raise ModelError(
            f"expected a finite weight for each of {tokenizer.get_vocab_size()} terms, found {weights.shape}",
            where=str(module.folder),
        )
    if (weights < 0).any():
        logger.warning(
            "%s: %d query terms have negative weights: they count as 0", folder, int((weights < 0).sum())
        )
    return np.maximum(weights, 0)


def _check_tokenizer(module: _Module, tokenizer: Tokenizer) -> None:
    """Refuse a query side that cuts texts in its own way: an index has one tokenizer."""
    if not any((module.folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return
    own = load_tokenizer(module.folder)
    ours, theirs = json.loads(tokenizer.to_str()), json.loads(own.to_str())
    if tokenizer.get_vocab() != own.get_vocab() or any(
        ours[k] != theirs[k] for k in ("normalizer", "pre_tokenizer")
    ):
        raise ModelError(
            "expected one tokenizer for queries and documents, found two", where=str(module.folder)
        )


def _weights_from_json(
    folder: Path, module: _Module, path: str, tokenizer: Tokenizer
) -> npt.NDArray[np.float32]:
    """Weights by wordpiece. `path` is as its author had it; here the file lies with the model."""
    name = Path(path).name if path.endswith(".json") else "idf.json"
    found = next((p for p in (module.folder / name, folder / name) if p.is_file()), None)
    if found is None:
        raise ModelError(f"expected the query weights in {name}, found no such file", where=str(folder))
    weights = np.zeros(tokenizer.get_vocab_size(), dtype=np.float32)
    for token, weight in read_json(found).items():
        if not isinstance(weight, int | float):
            raise ModelError(
                f"expected a number as the weight of {token!r}, found {type(weight).__name__}",
                where=str(found),
            )
        term = tokenizer.token_to_id(token)
        if term is not None:
            weights[term] = weight
    return weights


def _stored_weights(module: _Module) -> npt.NDArray[np.float32]:
    path = module.folder / "model.safetensors"
    if path.is_file():
        return load_state(path)["weight"].float().numpy()
    older = module.folder / "pytorch_model.bin"
    if not older.is_file():
        raise ModelError(
            "expected the query weights in model.safetensors, found no such file", where=str(module.folder)
        )
    stored = load_torch_file(older)
    if not isinstance(stored, dict) or not isinstance(stored.get("weight"), torch.Tensor):
        raise ModelError("expected a tensor named weight, found none", where=str(older))
    return stored["weight"].float().numpy()


# ---------------------------------------------------------------------- document side


def _take_decoder(language_model: nn.Module) -> nn.Linear:
    """Replace the last layer by an identity and give it back; the model's logits must be its product."""
    decoder = cast(Any, language_model).get_output_embeddings()
    place = next((name for name, module in language_model.named_modules() if module is decoder), None)
    if not isinstance(decoder, nn.Linear) or place is None:
        raise ModelError(
            f"expected a masked language model with a linear decoder, found {type(decoder).__name__}"
        )
    probe = torch.arange(4)[None]
    with torch.inference_mode():
        expected = language_model(input_ids=probe).logits
        parent, _, name = place.rpartition(".")
        setattr(language_model.get_submodule(parent), name, nn.Identity())
        states = language_model(input_ids=probe).logits
        fits = states.shape[-1] == decoder.in_features and torch.allclose(
            decoder(states), expected, atol=1e-4
        )
    if not fits:
        raise ModelError(
            f"{type(language_model).__name__} does more after its decoder than sparta can follow"
        )
    return decoder


def _layout(longest: int) -> InputLayout:
    return InputLayout(use_title=True, max_length=longest, overlap=min(InputLayout().overlap, longest // 4))


def _positions(config: Any) -> int:
    """How many wordpieces an encoder of this configuration can take."""
    limit = getattr(config, "max_position_embeddings", None) or _NO_LIMIT
    offset = (
        config.pad_token_id + 1 if "roberta" in config.model_type or config.model_type == "camembert" else 0
    )
    return int(limit) - offset


def _longest(transformer: _Module, config: Any) -> int:
    """Return the model's own limit: its settings', its tokenizer's or its encoder's, the smallest."""
    limits = [
        transformer.settings("sentence_bert_config.json").get("max_seq_length"),
        transformer.settings("tokenizer_config.json").get("model_max_length"),
        _positions(config),
    ]
    return int(min(limit for limit in limits if limit))
