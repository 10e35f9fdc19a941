"""Fusion, question answering and evaluation on top of sparta's channels.

A name is imported from its module on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparta.base.exports import lazy_names

if TYPE_CHECKING:
    from hybrid.answering.answerer import Answerer, open_answerer
    from hybrid.answering.answers import Answer
    from hybrid.answering.mining import mine_answers
    from hybrid.answering.path_answerer import PathAnswerer
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.compare import compare
    from hybrid.evaluation.evaluate import evaluate_runs, evaluate_set
    from hybrid.evaluation.measures import Evaluation
    from hybrid.evaluation.questions import questions_of
    from hybrid.evaluation.results import SetResults, results_table
    from hybrid.evaluation.testsets import QuestionSet
    from hybrid.evaluation.tune import tune
    from hybrid.multihop.chain import Chain
    from hybrid.multihop.searcher import ChainPassages, ChainSearcher
    from hybrid.multihop.steps import Step, read_chain
    from hybrid.multihop.tools import IndexTools
    from hybrid.opensearch.searcher import OpenSearchSearcher, open_opensearch
    from hybrid.replications.path_mining import mine_paths
    from hybrid.replications.path_train import PathRecipe, train_path_reader
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion
    from hybrid.retrieval.searcher import HybridSearcher

_HOMES = {
    "Answer": "hybrid.answering.answers",
    "Answerer": "hybrid.answering.answerer",
    "Answering": "hybrid.evaluation.answering",
    "Chain": "hybrid.multihop.chain",
    "ChainPassages": "hybrid.multihop.searcher",
    "ChainSearcher": "hybrid.multihop.searcher",
    "Channels": "hybrid.retrieval.channels",
    "Evaluation": "hybrid.evaluation.measures",
    "Fusion": "hybrid.retrieval.fusion",
    "HybridHit": "sparta.base.records:Hit",
    "HybridSearcher": "hybrid.retrieval.searcher",
    "IndexTools": "hybrid.multihop.tools",
    "OpenSearchSearcher": "hybrid.opensearch.searcher",
    "PathAnswerer": "hybrid.answering.path_answerer",
    "PathRecipe": "hybrid.replications.path_train",
    "QuestionSet": "hybrid.evaluation.testsets",
    "SetResults": "hybrid.evaluation.results",
    "Step": "hybrid.multihop.steps",
    "compare": "hybrid.evaluation.compare",
    "evaluate_runs": "hybrid.evaluation.evaluate",
    "evaluate_set": "hybrid.evaluation.evaluate",
    "mine_answers": "hybrid.answering.mining",
    "mine_paths": "hybrid.replications.path_mining",
    "open_answerer": "hybrid.answering.answerer",
    "open_opensearch": "hybrid.opensearch.searcher",
    "questions_of": "hybrid.evaluation.questions",
    "read_chain": "hybrid.multihop.steps",
    "results_table": "hybrid.evaluation.results",
    "train_path_reader": "hybrid.replications.path_train",
    "tune": "hybrid.evaluation.tune",
}

__all__ = [
    "Answer",
    "Answerer",
    "Answering",
    "Chain",
    "ChainPassages",
    "ChainSearcher",
    "Channels",
    "Evaluation",
    "Fusion",
    "HybridSearcher",
    "IndexTools",
    "OpenSearchSearcher",
    "PathAnswerer",
    "PathRecipe",
    "QuestionSet",
    "SetResults",
    "Step",
    "compare",
    "evaluate_runs",
    "evaluate_set",
    "mine_answers",
    "mine_paths",
    "open_answerer",
    "open_opensearch",
    "questions_of",
    "read_chain",
    "results_table",
    "train_path_reader",
    "tune",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
