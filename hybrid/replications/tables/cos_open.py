"""The tables of Chain-of-Skills on open questions: answer recall, and answers on NQ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid.replications.tables.cos_chains import OURS, shipped_reader
from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of
from hybrid.replications.tables.taser import RECALLS, open_sets
from hybrid.replications.tables.two_hops import hits_of, hotpot, nearest, searched, two_hops

DENSE = "dense, shipped model"
FUSED = "dense + impact, shipped models"


def zero_shot(experiment: Experiment) -> None:
    """Measure table 1: answer recall without training on the sets, with the oracle second hop of HotpotQA."""
    _open_recall(experiment, {"NQ": "nq-test", "WebQ": "webquestions", "EQ": "entities"})
    _oracle_hop(experiment)


def supervised(experiment: Experiment) -> None:
    """Measure table 2: answer recall on NQ."""
    _open_recall(experiment, {"NQ": "nq-test"})


def across(experiment: Experiment) -> None:
    """Measure table 5: answer recall on EntityQuestions and SQuAD."""
    _open_recall(experiment, {"EQ": "entities", "SQuAD": "squad"})


def _open_recall(experiment: Experiment, sources: Mapping[str, str]) -> None:
    """Measure the channels of Wikipedia's index and their fusion, on each set that the data have."""
    from hybrid.evaluation.compare import compare
    from hybrid.replications.tables.collection import (
        ALL_CHANNELS,
        ALL_SETS,
        index_of,
        wikipedia_texts,
    )
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion

    sets = open_sets(experiment, sources)
    located = [experiment.located(source) for source in sources.values()]
    passages = wikipedia_texts(experiment)
    fusion = Fusion({"dense": 1.0, "impact": 1.0})
    names = {"bm25": "BM25", "dense": DENSE, fusion.label: FUSED}

    def measure() -> Mapping[str, Figures]:
        index = index_of(experiment, ALL_SETS, passages, list(sets.values()), ALL_CHANNELS)
        figures: dict[str, dict[str, Any]] = {name: {} for name in names.values()}
        with Channels(index, ALL_CHANNELS.split(",")) as channels:
            for column, questions in sets.items():
                for evaluation in compare(channels, questions, [fusion], measures=RECALLS).evaluations:
                    if evaluation.name in names:
                        row = figures[names[evaluation.name]]
                        row[f"{column} Top-20"] = 100 * evaluation.mean(RECALLS[0])
                        row[f"{column} Top-100"] = 100 * evaluation.mean(RECALLS[1])
        return dict(figures)

    experiment.measure(list(names.values()), "; ".join(item.label for item in located if item), measure)


def _oracle_hop(experiment: Experiment) -> None:
    """Measure the second passage of each question, with the first gold passage in the query."""
    from dense.models.bi_encoder import DenseModel
    from dense.models.resolve import dense_model_folder

    located = experiment.located("kilt-hotpot")
    if located is None or not experiment.located("kilt-passages"):
        return

    def measure() -> Mapping[str, Figures]:
        hops, passages = two_hops(experiment)
        index, _ = hotpot(experiment)
        model = DenseModel.load(dense_model_folder("multi-task-bge-small-en"))
        by_id = {passage.passage_id: passage for passage in passages}
        queries = [f"{hop.question} {by_id[hop.first].title} {by_id[hop.first].text}" for hop in hops]
        ranked = nearest(model.encode_questions(queries), model.encode_passages(passages)[:, 0], passages)
        return {
            "BM25": hits_of(searched(index, queries), hops, "HotpotQA"),
            "multi-task-bge-small-en": hits_of(ranked, hops, "HotpotQA"),
        }

    experiment.measure(["BM25", "multi-task-bge-small-en"], f"{located.label}, oracle first hop", measure)


def nq_answers(experiment: Experiment) -> None:
    """Measure table A2: EM on NQ of the shipped reader, with the passages of each ranking."""
    from hybrid.evaluation.compare import compare
    from hybrid.replications.tables.collection import (
        ALL_CHANNELS,
        ALL_SETS,
        index_of,
        wikipedia_texts,
    )
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion

    sets, located = open_sets(experiment, {"NQ": "nq-test"}), experiment.located("nq-test")
    assert located is not None
    fusion = Fusion({"dense": 1.0, "impact": 1.0})
    names = {"bm25": "BM25 + shipped reader", fusion.label: "dense + impact + shipped reader"}

    def measure() -> Mapping[str, Figures]:
        texts = wikipedia_texts(experiment)
        index = index_of(experiment, ALL_SETS, texts, [sets["NQ"]], ALL_CHANNELS)
        with Channels(index, ALL_CHANNELS.split(",")) as channels:
            results = compare(
                channels, sets["NQ"], [fusion], answering=shipped_reader(), measures=["answer_recall@20"]
            )
        return {
            names[e.name]: {"EM": 100 * e.mean("EM"), "F1": 100 * e.mean("F1")}
            for e in results.evaluations
            if e.name in names
        }

    experiment.measure(list(names.values()), located.label, measure)


TABLES = (
    PaperTable(
        name="cos-1",
        number="1",
        title="Zero-shot retrieval: answer recall, and the second hop of HotpotQA after the gold first hop",
        figures=rows_of(
            "NQ Top-20, NQ Top-100, WebQ Top-20, WebQ Top-100, EQ Top-20, EQ Top-100, HotpotQA Top-20,"
            " HotpotQA Top-100",
            {
                "BM25": (62.9, 78.3, 62.4, 75.5, 70.8, 79.2, 37.5, 50.5),
                "Contriever": (67.8, 82.1, 65.4, 79.8, 61.8, 74.2, 48.7, 64.5),
                "Spider": (68.3, 81.2, 65.9, 79.7, 65.1, 76.4, 35.3, 48.6),
                "COS (pretrain-only)": (68.0, 81.8, 66.7, 80.3, 70.7, 79.1, 77.9, 87.9),
            },
        ),
        measure=zero_shot,
        sources=("wikipedia",),
        any_of=("nq-test", "webquestions", "entities"),
        gaps=(OURS, "HotpotQA's column counts questions whose second passage is found."),
    ),
    PaperTable(
        name="cos-2",
        number="2",
        title="Supervised retrieval on NQ: answer recall",
        figures=rows_of(
            "NQ Top-20, NQ Top-100",
            {
                "DPR (multi-set)": (79.5, 86.1),
                "ANCE (multi-set)": (82.1, 87.9),
                "DPR-PAQ": (84.7, 89.2),
                "coCondenser": (84.3, 89.0),
                "SPAR-Wiki": (83.0, 88.8),
                "COS": (85.6, 90.2),
            },
        ),
        measure=supervised,
        sources=("wikipedia", "nq-test"),
        gaps=(OURS,),
    ),
    PaperTable(
        name="cos-5",
        number="5",
        title="Retrieval across data sets: answer recall",
        figures=rows_of(
            "EQ Top-20, EQ Top-100, SQuAD Top-20, SQuAD Top-100",
            {
                "BM25": (70.8, 79.2, 71.1, 81.8),
                "DPR (multi-set)": (56.6, 70.1, 52.0, 67.7),
                "SPAR-Wiki": (73.6, 81.5, 73.0, 83.6),
                "COS": (76.3, 82.4, 72.6, 81.2),
            },
        ),
        measure=across,
        sources=("wikipedia",),
        any_of=("entities", "squad"),
        gaps=(OURS,),
    ),
    PaperTable(
        name="cos-a2",
        number="A2",
        title="NQ end to end: EM",
        figures=rows_of(
            "EM",
            {
                "FiD": (51.4,),
                "UnitedQA-E": (51.8,),
                "FiD-KD": (54.4,),
                "R2-D2": (55.9,),
                "FiE": (58.4,),
                "FiE (the paper's implementation)": (56.3,),
                "COS + FiE": (56.4,),
            },
        ),
        measure=nq_answers,
        sources=("wikipedia", "nq-test"),
        gaps=(OURS, "The shipped reader is not a Fusion-in-Encoder."),
    ),
)
