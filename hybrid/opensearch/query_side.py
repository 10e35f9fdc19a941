"""Stores the query side (tokenizer and query-term weights) in OpenSearch: as a model's zip or a document."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.models.lexical_terms import TERMS_FILE
from sparta.models.query_encoder import WEIGHTS_FILE, QuerySide

MOST_WEIGHT = 64
_NO_WEIGHT = 1e-30
"""OpenSearch takes query-term weights above 0 and up to 64; `_NO_WEIGHT` replaces 0."""


def weight_scale(weights: Mapping[Any, int]) -> int:
    """Return the power of two by which weights are divided to be at most 64; this is exact in float32."""
    scale = 1
    while max(weights.values(), default=0) > MOST_WEIGHT * scale:
        scale *= 2
    return scale


def query_weights(side: QuerySide) -> dict[str, float]:
    """Return each term's weight for OpenSearch's tokenizer model: above 0, up to 64; {} if all count 1."""
    if side.weights is None:
        return {}
    weights = {
        term: int(weight) for term, weight in zip(side.vocabulary(), side.weights.tolist(), strict=False)
    }
    scale = weight_scale(weights)
    return {term: weight / scale or _NO_WEIGHT for term, weight in weights.items()}


def tokenizer_zip(side: QuerySide) -> bytes:
    """Return the zip that OpenSearch registers as SPARSE_TOKENIZE; the same model gives the same bytes.

    :raises InputError: a network encodes queries, which this model of OpenSearch cannot do
    """
    if side.has_network:
        raise InputError(
            "OpenSearch's tokenizer model cannot encode queries with the network of the index's model",
            where=side.model,
            remedy=remedy(
                "push the index to OpenSearch and search it through sparta, or build it again with {}",
                Option("query_encoder", "none"),
            ),
        )
    files = {
        "tokenizer.json": side.tokenizer.to_str(),
        "idf.json": json.dumps(query_weights(side), ensure_ascii=False),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def side_document(side: QuerySide) -> dict[str, Any]:
    """Return the query side as a document on the server, so that a searcher needs only the server's URL."""
    weights = None if side.weights is None else side.weights.tolist()
    document = {"identity": side.identity(), "tokenizer": side.tokenizer.to_str(), "weights": weights}
    if side.lexical is None:
        return document
    with tempfile.TemporaryDirectory() as folder:
        side.lexical.save(Path(folder))
        content = (Path(folder) / TERMS_FILE).read_bytes()
    return {**document, "lexical_terms": base64.b64encode(content).decode()}


def feature_name(term: str) -> str:
    """Return the name of a term of an index with lexical terms: names of features contain no dots.

    A dot in the name of a field separates an object from its field. The one-dot leader is in no term.
    """
    return term.replace(".", "\u2024")


def side_id(side: QuerySide) -> str:
    """Return the id of the query side's document: a hash of its content."""
    return hashlib.sha256(json.dumps(side_document(side), sort_keys=True).encode()).hexdigest()[:16]


def side_of_document(document: Mapping[str, Any]) -> QuerySide:
    """Return the query side of a document that `side_document` made.

    :raises IndexStateError: the document is damaged
    """
    weights = document.get("weights")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(document["tokenizer"], encoding="utf-8")
        if weights is not None:
            weights_file = save({"weights": np.array(weights, np.int32)})
            (Path(folder) / WEIGHTS_FILE).write_bytes(weights_file)
        if "lexical_terms" in document:
            (Path(folder) / TERMS_FILE).write_bytes(base64.b64decode(document["lexical_terms"]))
        return QuerySide.load(Path(folder), document["identity"])
