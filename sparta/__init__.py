"""sparta: open-domain question answering with a Lucene index that a transformer wrote.

Importing this package does not start Java, load torch or use the network: each name is loaded at its first
use. No public name equals the name of a submodule.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sparta.base.exports import lazy_names

if sys.platform == "win32":
    raise ImportError("sparta runs on Linux and macOS; on Windows, use WSL 2 or the container image")

if TYPE_CHECKING:
    from sparta.api import Index
    from sparta.base.errors import (
        IndexStateError,
        InputError,
        Interrupted,
        JavaError,
        MissingPackageError,
        ModelError,
        ServerError,
        SpartaError,
        StorageError,
    )
    from sparta.base.records import Hit, Passage, Query, Ranking, ScoredPassage
    from sparta.data.units import chunk_unit
    from sparta.index.build import IndexReport
    from sparta.index.inputs.options import IndexOptions
    from sparta.index.reader import IndexReader
    from sparta.index.snapshot import IndexSnapshot, IndexVersion
    from sparta.index.sync import SyncReport
    from sparta.lucene.bridge import Bm25
    from sparta.models.load import load_model
    from sparta.models.quantize import Quantizer
    from sparta.models.sparta import SpartaModel
    from sparta.reader.config import ReaderLayout
    from sparta.reader.path_reader import PathReader
    from sparta.reader.reader import Reader
    from sparta.reader.records import Span, Text
    from sparta.reader.train import ReaderRecipe, train_reader
    from sparta.search.explain import Explanation, TermContribution, top_terms
    from sparta.search.retriever import Page, Retriever
    from sparta.search.searcher import Searcher
    from sparta.shards.encode import EncodeOptions, EncodeReport, encode_corpus
    from sparta.shards.ray_executor import RayCluster
    from sparta.sharing.backup import BackupReport
    from sparta.sharing.hub import Pulled, pull, push_model
    from sparta.training.options import SpartaRecipe, TrainResult
    from sparta.training.train import train_model

_HOMES = {
    "BackupReport": "sparta.sharing.backup",
    "Pulled": "sparta.sharing.hub",
    "pull": "sparta.sharing.hub",
    "push_model": "sparta.sharing.hub",
    "Bm25": "sparta.lucene.bridge",
    "EncodeOptions": "sparta.shards.encode",
    "EncodeReport": "sparta.shards.encode",
    "Explanation": "sparta.search.explain",
    "Hit": "sparta.base.records",
    "Index": "sparta.api",
    "IndexOptions": "sparta.index.inputs.options",
    "IndexReport": "sparta.index.build",
    "IndexStateError": "sparta.base.errors",
    "IndexReader": "sparta.index.reader",
    "IndexSnapshot": "sparta.index.snapshot",
    "IndexVersion": "sparta.index.snapshot",
    "InputError": "sparta.base.errors",
    "Interrupted": "sparta.base.errors",
    "JavaError": "sparta.base.errors",
    "MissingPackageError": "sparta.base.errors",
    "ModelError": "sparta.base.errors",
    "Passage": "sparta.base.records",
    "Quantizer": "sparta.models.quantize",
    "Query": "sparta.base.records",
    "RayCluster": "sparta.shards.ray_executor",
    "PathReader": "sparta.reader.path_reader",
    "PathRecipe": "hybrid:PathRecipe",
    "Reader": "sparta.reader.reader",
    "ReaderLayout": "sparta.reader.config",
    "ReaderRecipe": "sparta.reader.train",
    "Page": "sparta.search.retriever",
    "Ranking": "sparta.base.records",
    "Retriever": "sparta.search.retriever",
    "ScoredPassage": "sparta.base.records",
    "Searcher": "sparta.search.searcher",
    "ServerError": "sparta.base.errors",
    "Span": "sparta.reader.records",
    "SpartaError": "sparta.base.errors",
    "SpartaModel": "sparta.models.sparta",
    "SpartaRecipe": "sparta.training.options",
    "StorageError": "sparta.base.errors",
    "SyncReport": "sparta.index.sync",
    "TermContribution": "sparta.search.explain",
    "TermShare": "sparta.search.explain:TermContribution",
    "Text": "sparta.reader.records",
    "TrainResult": "sparta.training.options",
    "chunk_unit": "sparta.data.units",
    "encode_corpus": "sparta.shards.encode",
    "load_model": "sparta.models.load",
    "top_terms": "sparta.search.explain",
    "train_model": "sparta.training.train",
    "train_path_reader": "hybrid:train_path_reader",
    "train_reader": "sparta.reader.train",
}

__all__ = [
    "BackupReport",
    "Bm25",
    "EncodeOptions",
    "EncodeReport",
    "Explanation",
    "Hit",
    "Index",
    "IndexOptions",
    "IndexReader",
    "IndexReport",
    "IndexSnapshot",
    "IndexStateError",
    "IndexVersion",
    "InputError",
    "Interrupted",
    "JavaError",
    "MissingPackageError",
    "ModelError",
    "Page",
    "Passage",
    "PathReader",
    "Pulled",
    "Quantizer",
    "Query",
    "Ranking",
    "RayCluster",
    "Reader",
    "ReaderLayout",
    "ReaderRecipe",
    "Retriever",
    "ScoredPassage",
    "Searcher",
    "ServerError",
    "Span",
    "SpartaError",
    "SpartaModel",
    "SpartaRecipe",
    "StorageError",
    "SyncReport",
    "TermContribution",
    "Text",
    "TrainResult",
    "chunk_unit",
    "encode_corpus",
    "load_model",
    "pull",
    "push_model",
    "top_terms",
    "train_model",
    "train_reader",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
