"""sparta: open-domain question answering from a Lucene index that a transformer wrote.

Importing this package starts no Java, loads no torch and touches no network; each name is loaded when it
is used. No public name is also the name of a submodule.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparta.base.extras import optional_packages

if TYPE_CHECKING:
    from sparta.api import Index
    from sparta.base.errors import (
        IndexStateError,
        InputError,
        Interrupted,
        JavaError,
        MissingPackageError,
        ModelError,
        SpartaError,
        StorageError,
    )
    from sparta.base.records import Hit, Passage, Query, Retriever, ScoredPassage
    from sparta.index.build import IndexReport
    from sparta.index.pipeline import IndexOptions
    from sparta.index.view import IndexVersion
    from sparta.models.load import load_model
    from sparta.models.quantize import Quantizer
    from sparta.models.sparse import SpartaModel
    from sparta.search.explain import Explanation, TermShare, top_terms
    from sparta.search.searcher import Searcher

_HOMES = {
    "IndexStateError": "sparta.base.errors",
    "InputError": "sparta.base.errors",
    "JavaError": "sparta.base.errors",
    "MissingPackageError": "sparta.base.errors",
    "ModelError": "sparta.base.errors",
    "SpartaError": "sparta.base.errors",
    "StorageError": "sparta.base.errors",
    "Passage": "sparta.base.records",
    "Query": "sparta.base.records",
    "ScoredPassage": "sparta.base.records",
    "Explanation": "sparta.search.explain",
    "TermShare": "sparta.search.explain",
    "top_terms": "sparta.search.explain",
    "load_model": "sparta.models.load",
    "SpartaModel": "sparta.models.sparse",
    "Quantizer": "sparta.models.quantize",
    "Hit": "sparta.base.records",
    "Retriever": "sparta.base.records",
    "Interrupted": "sparta.base.errors",
    "Index": "sparta.api",
    "IndexOptions": "sparta.index.pipeline",
    "IndexReport": "sparta.index.build",
    "IndexVersion": "sparta.index.view",
    "Searcher": "sparta.search.searcher",
}

__all__ = [
    "Explanation",
    "Hit",
    "Index",
    "IndexOptions",
    "IndexReport",
    "IndexStateError",
    "IndexVersion",
    "InputError",
    "Interrupted",
    "JavaError",
    "MissingPackageError",
    "ModelError",
    "Passage",
    "Quantizer",
    "Query",
    "Retriever",
    "ScoredPassage",
    "Searcher",
    "SpartaError",
    "SpartaModel",
    "StorageError",
    "TermShare",
    "load_model",
    "top_terms",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparta' has no attribute {name!r}")
    with optional_packages():
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
