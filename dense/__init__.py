"""Dense retrieval: bi-encoders (DPR, TASER), their vectors, exact and approximate search, and training.

The package imports a class or function when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparta.base.exports import lazy_names

if TYPE_CHECKING:
    from dense.channel.encode import VectorOptions, VectorReport, encode_vectors
    from dense.channel.searcher import DenseSearcher
    from dense.channel.sync import DenseReport, build_dense
    from dense.encoding.skills import Skills
    from dense.models.bi_encoder import DenseModel
    from dense.models.config import DenseConfig
    from dense.models.skill_config import SkillConfig
    from dense.training.skill_data import read_skill_sets
    from dense.training.skill_train import SkillRecipe, train_skills
    from dense.training.stages import train_in_two_stages
    from dense.training.train import Recipe, train_dense

_HOMES = {
    "DenseConfig": "dense.models.config",
    "DenseModel": "dense.models.bi_encoder",
    "DenseReport": "dense.channel.sync",
    "DenseSearcher": "dense.channel.searcher",
    "Recipe": "dense.training.train",
    "SkillConfig": "dense.models.skill_config",
    "SkillRecipe": "dense.training.skill_train",
    "Skills": "dense.encoding.skills",
    "VectorOptions": "dense.channel.encode",
    "VectorReport": "dense.channel.encode",
    "build_dense": "dense.channel.sync",
    "encode_vectors": "dense.channel.encode",
    "read_skill_sets": "dense.training.skill_data",
    "train_dense": "dense.training.train",
    "train_in_two_stages": "dense.training.stages",
    "train_skills": "dense.training.skill_train",
}

__all__ = [
    "DenseConfig",
    "DenseModel",
    "DenseReport",
    "DenseSearcher",
    "Recipe",
    "SkillConfig",
    "SkillRecipe",
    "Skills",
    "VectorOptions",
    "VectorReport",
    "build_dense",
    "encode_vectors",
    "read_skill_sets",
    "train_dense",
    "train_in_two_stages",
    "train_skills",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
