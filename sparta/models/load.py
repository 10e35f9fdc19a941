"""Opening a model of any supported format, from a folder or a hub id, with a quantizer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparta.base.errors import InputError, ModelError
from sparta.base.extras import optional_packages
from sparta.base.records import Passage
from sparta.base.remedies import Option, remedy
from sparta.models.document_encoder import fit_quantizer
from sparta.models.folders.kinds import Kind, kind_of
from sparta.models.lexical_terms import LexicalTerms
from sparta.models.model import SparseModel
from sparta.models.network_queries import NETWORK_BITS, open_query_network
from sparta.models.quantize import Quantizer, QueryQuantizer
from sparta.models.resolve import DEFAULT_MODEL, check_unchanged, hash_folder, lasting_name, model_folder
from sparta.models.stored_model import StoredModel, open_stored
from sparta.runtime.calibration import fixed_lines
from sparta.runtime.fallback import opened_on

if TYPE_CHECKING:
    from sparta.models.sparse import SparseEncoder

logger = logging.getLogger(__name__)

BY_NETWORK, NO_NETWORK = "network", "none"
"""How queries become terms: by the model's network, or by tokenization, where each distinct term counts 1."""


def load_model(
    name: str | Path | None = None,
    *,
    bits: int | None = None,
    device: str | None = None,
    query_encoder: str | None = None,
) -> SparseModel:
    """Open a model folder or hub id; None means the default model, which ships with sparta.

    `sparta.models.folders.kinds` lists the supported kinds of models. A model without a quantizer gets one,
    calibrated on fixed texts in sparta, so that it is the same on every machine.

    On a CPU, OpenVINO encodes with a BERT or DistilBERT whose weights are in model.safetensors. Torch encodes
    with other encoders, and on GPUs.

    :param bits: the bits per impact; None means the model's setting. The weight scale stays the same.
    :param device: `cpu`, `cuda:0` or another device of torch; None means a GPU if there is one
    :param query_encoder: `network`, or `none`, which only tokenizes queries and counts each term once; None
        means as the model defines it
    :raises ModelError: the model cannot be loaded.
    """
    folder = model_folder(name)
    _check_kind(folder)

    def read() -> StoredModel:
        identity = hash_folder(folder)
        return _named(open_stored(folder), name, folder, identity, bits, query_encoder)

    return opened_on(
        folder, device, read, lambda device: _module(name, folder, bits, query_encoder).on_device(device)
    )


def load_module(
    name: str | Path | None = None, *, bits: int | None = None, query_encoder: str | None = None
) -> SparseEncoder:
    """Open a model as a torch module on the CPU, to train, export or inspect it; see `load_model`."""
    folder = model_folder(name)
    _check_kind(folder)
    return _module(name, folder, bits, query_encoder)


def _module(
    name: str | Path | None, folder: Path, bits: int | None, query_encoder: str | None = None
) -> SparseEncoder:
    identity = hash_folder(folder)
    with optional_packages():
        module = _load(folder)
    return _named(module, name, folder, identity, bits, query_encoder).eval()


def _named[M: SparseModel](
    model: M,
    name: str | Path | None,
    folder: Path,
    identity: str,
    bits: int | None,
    query_encoder: str | None = None,
) -> M:
    """Set a model's name, identity, query encoder and quantizers, and return it.

    :param identity: the hash of the folder before the model was read
    :raises ModelError: other files came into the folder meanwhile.
    """
    check_unchanged(folder, identity)
    model.name, model.identity = lasting_name(name or DEFAULT_MODEL), identity
    if query_encoder == NO_NETWORK:
        model.without_query_network()
    elif query_encoder == BY_NETWORK and not model.has_query_network:
        raise ModelError(
            "the model has no network for queries",
            where=str(folder),
            remedy=remedy("omit {}", Option("query_encoder")),
        )
    elif query_encoder not in (None, BY_NETWORK):
        raise InputError(f"query_encoder must be {BY_NETWORK} or {NO_NETWORK}, found {query_encoder!r}")
    if model.config.query_quantizer is None:
        model.config = replace(model.config, query_quantizer=_query_grid(model, folder))
    model.lexical = LexicalTerms.load(folder, model.tokenizer)
    quantizer = model.config.quantizer or fit_quantizer(model, calibration_passages())
    impact_bits = quantizer.bits if bits is None else bits
    model.config = replace(model.config, quantizer=Quantizer(quantizer.max_weight, impact_bits))
    return model


def _query_grid(model: SparseModel, folder: Path) -> QueryQuantizer | None:
    """Return the grid of the query weights of another project's model; None means that of `SparseModel`."""
    if model.has_query_network:
        return open_query_network(folder).fitted_grid(fixed_lines("calibration.txt"))
    if model.query_weights is None or kind_of(folder) is Kind.SPARTA:
        return None
    return QueryQuantizer.fit(model.query_weights, NETWORK_BITS)  # the weights of other projects vary more


def calibration_passages() -> list[Passage]:
    """Return the fixed texts for calibrating the quantizer of other projects' models."""
    return [Passage(str(i), line) for i, line in enumerate(fixed_lines("calibration.txt"))]


def _load(folder: Path) -> SparseEncoder:
    from sparta.models.folders.foreign import load_beir_sparta, load_sparse_encoder
    from sparta.models.sparta import SpartaModel

    kind = kind_of(folder)
    if kind is Kind.SPARTA:
        return SpartaModel.load(folder)
    return load_beir_sparta(folder) if kind is Kind.BEIR else load_sparse_encoder(folder)


def _check_kind(folder: Path) -> None:
    """Refuse a folder of no known kind, and warn of a plain encoder."""
    if kind_of(folder) is Kind.BEIR:
        logger.warning(
            "%s: config.json has no sparta object, so the model is read like a SPARTA checkpoint of BEIR",
            folder,
        )


def open_encoder(
    name: str | Path | None,
    bits: int | None = None,
    devices: Sequence[str] = (),
    query_encoder: str | None = None,
) -> SparseModel:
    """Open a model on the first of the devices; without devices, on the best available device."""
    return load_model(name, bits=bits, device=devices[0] if devices else None, query_encoder=query_encoder)
