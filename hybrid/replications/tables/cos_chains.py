"""The tables of Chain-of-Skills that shipped chains answer: OTT-QA and HotpotQA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of
from hybrid.replications.tables.two_hops import KILT, hotpot

if TYPE_CHECKING:
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.testsets import QuestionSet

OURS = "Our rows measure shipped models and chains, not a model that was trained as in the paper."


def table_rows(experiment: Experiment) -> None:
    """Measure table 3: answer recall on OTT-QA, by the chain from table rows to pages, and by BM25."""
    _chains(experiment, ["tabletext"], "ott", _ott, {f"Top-{k}": f"answer_recall@{k}" for k in (20, 50, 100)})


def passage_pairs(experiment: Experiment) -> None:
    """Measure table 4: passage EM on HotpotQA, by the shipped chains and by BM25."""
    _chains(experiment, ["hop", "hop-read"], "kilt-hotpot", hotpot, {"Passage EM": "passage_EM"})


def table_answers(experiment: Experiment) -> None:
    """Measure table 8: EM and F1 on OTT-QA, with the passages of the chain from table rows to pages."""
    _chains(experiment, ["tabletext"], "ott", _ott, {"EM": "EM", "F1": "F1"}, answers=True)


def supporting(experiment: Experiment) -> None:
    """Measure table A3: answers, supporting sentences and joint measures, by the chain that reads paths."""
    measures = {"Ans EM": "EM", "Ans F1": "F1"}
    source = "hotpot-facts" if experiment.located("hotpot-facts") else "kilt-hotpot"
    if source == "hotpot-facts":
        measures |= {
            "Sup EM": "sup_EM",
            "Sup F1": "sup_F1",
            "Joint EM": "joint_EM",
            "Joint F1": "joint_F1",
        }
    _chains(experiment, ["hop-read"], source, partial(hotpot, source=source), measures, answers=True)


def _ott(experiment: Experiment) -> tuple[Path, QuestionSet]:
    """Return an index of pages and table rows, and the questions within the cut."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import index_of, kilt_texts, sampled

    questions = sampled(questions_of(experiment.path("ott")), experiment)
    texts = [*kilt_texts(experiment), experiment.path("ott-tables")]
    return index_of(experiment, "ott", texts, [questions], "bm25"), questions


def _chains(
    experiment: Experiment,
    chains: Sequence[str],
    source: str,
    data: Callable[[Experiment], tuple[Path, QuestionSet]],
    measures: Mapping[str, str],
    *,
    answers: bool = False,
) -> None:
    """Measure shipped chains beside BM25, in one row each.

    :param source: the questions, by the name of their source
    :param data: returns the index and the questions
    :param measures: the measure of each column
    """
    located = experiment.located(source)
    assert located is not None
    for name in chains:

        def measure(name: str = name) -> Mapping[str, Figures]:
            from hybrid.evaluation.compare import compare
            from hybrid.evaluation.questions import judged
            from hybrid.multihop.searcher import ChainSearcher
            from hybrid.retrieval.channels import Channels

            index, questions = data(experiment)
            questions = judged(questions, index)
            asked = [m for m in measures.values() if m not in ("EM", "F1")]
            names = asked if asked and not answers else [*asked, "answer_recall@20"]
            names = [*names, "R@20"] if "passage_EM" in names else names
            answering = shipped_reader() if answers else None
            with ChainSearcher(name, index) as chain, Channels(index, ["bm25"]) as channels:
                if not chain.tells_sentences:
                    names = [m for m in names if not m.startswith(("sup_", "joint_"))]
                results = compare(
                    channels, questions, (), chains=[chain], answering=answering, measures=names
                )
            return {
                "BM25" if evaluation.name == "bm25" else f"{name}, shipped chain": {
                    column: 100 * evaluation.mean(measure)
                    for column, measure in measures.items()
                    if measure in evaluation.per_query
                }
                for evaluation in results.evaluations
            }

        experiment.measure([f"{name}, shipped chain", "BM25"], f"{located.label}, chain {name}", measure)


def shipped_reader() -> Answering:
    """Return the shipped reader, which reads ten passages."""
    from hybrid.evaluation.answering import Answering
    from sparta.reader.config import reader_folder
    from sparta.reader.reader import Reader

    return Answering(Reader.open(reader_folder(None, "en")), [10])


TABLES = (
    PaperTable(
        name="cos-3",
        number="3",
        title="Supervised retrieval on OTT-QA, from tables to rows to pages: answer recall",
        figures=rows_of(
            "Top-20, Top-50, Top-100",
            {
                "CORE": (74.5, 82.9, 87.1),
                "COS": (79.9, 88.9, 92.2),
                "COS w/ CORE configuration": (80.5, 88.6, 91.8),
            },
        ),
        measure=table_rows,
        sources=("ott", "ott-tables", "kilt-passages"),
        gaps=(OURS,),
    ),
    PaperTable(
        name="cos-4",
        number="4",
        title="Passage EM on HotpotQA",
        figures=rows_of(
            "Passage EM",
            {
                "MDR": (81.20,),
                "Baleen": (86.10,),
                "IRRR": (84.10,),
                "TPRR": (86.19,),
                "HopRetriever-plus": (86.94,),
                "AISO": (88.17,),
                "COS": (88.89,),
            },
        ),
        measure=passage_pairs,
        sources=KILT,
        gaps=(OURS,),
    ),
    PaperTable(
        name="cos-8",
        number="8",
        title="OTT-QA end to end: EM and F1",
        figures=rows_of(
            "EM, F1",
            {
                "HYBRIDER": (10.3, 13.0),
                "CARP": (33.2, 38.6),
                "OTTer": (37.1, 42.8),
                "CORE": (49.0, 55.7),
                "CORE + FiE": (51.4, 57.8),
                "COS + FiE": (56.9, 63.2),
            },
        ),
        measure=table_answers,
        sources=("ott", "ott-tables", "kilt-passages"),
        gaps=(OURS, "The shipped reader is not a Fusion-in-Encoder."),
    ),
    PaperTable(
        name="cos-a3",
        number="A3",
        title="HotpotQA end to end: answers, supporting sentences, joint measures",
        figures=rows_of(
            "Ans EM, Ans F1, Sup EM, Sup F1, Joint EM, Joint F1",
            {
                "MDR": (62.3, 75.1, 56.5, 79.4, 42.1, 66.3),
                "HopRetriever-plus": (66.6, 79.2, 56.0, 81.8, 42.0, 69.0),
                "TPRR": (67.3, 80.1, 60.2, 84.5, 45.3, 71.4),
                "AISO": (68.1, 80.9, 61.5, 86.5, 45.9, 72.5),
                "COS": (68.2, 81.0, 61.1, 85.3, 46.4, 72.3),
            },
        ),
        measure=supporting,
        sources=("kilt-passages",),
        any_of=("kilt-hotpot", "hotpot-facts"),
        gaps=(OURS, "Supporting sentences need HotpotQA's JSON and a path reader trained on it."),
    ),
)
