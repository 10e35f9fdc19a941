"""The dense channel: bi-encoders (DPR, TASER), their vectors, exact and approximate search, training.

Each name is loaded when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparta.base.exports import lazy_names

if TYPE_CHECKING:
    from dense.channel.encode import VectorOptions, VectorReport, encode_vectors
    from dense.channel.searcher import DenseSearcher
    from dense.channel.sync import DenseReport, build_dense
    from dense.models.bi_encoder import DenseModel
    from dense.models.config import DenseConfig
    from dense.training.stages import train_in_two_stages
    from dense.training.train import Recipe, train_dense

_HOMES = {
    "DenseConfig": "dense.models.config",
    "DenseModel": "dense.models.bi_encoder",
    "DenseReport": "dense.channel.sync",
    "DenseSearcher": "dense.channel.searcher",
    "Recipe": "dense.training.train",
    "VectorOptions": "dense.channel.encode",
    "VectorReport": "dense.channel.encode",
    "build_dense": "dense.channel.sync",
    "encode_vectors": "dense.channel.encode",
    "train_dense": "dense.training.train",
    "train_in_two_stages": "dense.training.stages",
}

__all__ = [
    "DenseConfig",
    "DenseModel",
    "DenseReport",
    "DenseSearcher",
    "Recipe",
    "VectorOptions",
    "VectorReport",
    "build_dense",
    "encode_vectors",
    "train_dense",
    "train_in_two_stages",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
