"""The tables of Chain-of-Skills: retrieval by skills and chains, experts, and answers end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of
from hybrid.replications.tables.taser import open_sets

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.testsets import QuestionSet
    from sparta.base.records import Passage

DENSE = "dense, shipped model"
FUSED = "dense + impact, shipped models"
RECALLS = ("answer_recall@20", "answer_recall@100")
SMALL_BATCH, BATCH = 16, 192


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
    from hybrid.replications.tables.collection import ALL_CHANNELS, ALL_SETS, index_of
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion

    sets = open_sets(experiment, sources)
    located = [experiment.located(source) for source in sources.values()]
    passages = [experiment.path(name) for name in ("wikipedia", "squad-texts") if experiment.located(name)]
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


class TwoHops(NamedTuple):
    """Questions with two gold passages: the question, and the ids of the passages in order."""

    question: str
    first: str
    second: str


def _two_hops(experiment: Experiment) -> tuple[list[TwoHops], list[Passage]]:
    """Return the questions with two gold passages, and the passages of the index."""
    from hybrid.evaluation.questions import judged
    from hybrid.replications.tables.collection import all_passages

    index, questions = _hotpot(experiment)
    gold = judged(questions, index).qrels
    hops = [
        TwoHops(query.text, *ids)
        for query in questions.queries
        if len(ids := list(gold.get(query.query_id, {}))) == 2
    ]
    return hops, all_passages(index)


def _hotpot(experiment: Experiment) -> tuple[Path, QuestionSet]:
    """Return an index of the passages of multi-hop questions, and the questions within the cut."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import index_of, sampled

    questions = sampled(questions_of(experiment.path("hotpot")), experiment)
    return index_of(experiment, "kilt", _texts(experiment), [questions], "bm25"), questions


def _texts(experiment: Experiment) -> list[Path]:
    return [experiment.path(name) for name in ("kilt-passages", "kilt-more") if experiment.located(name)]


def _oracle_hop(experiment: Experiment) -> None:
    """Measure the second passage of each question, with the first gold passage in the query."""
    from dense.models.bi_encoder import DenseModel
    from dense.models.resolve import dense_model_folder

    located = experiment.located("hotpot")
    if located is None or not experiment.located("kilt-passages"):
        return

    def measure() -> Mapping[str, Figures]:
        hops, passages = _two_hops(experiment)
        index, _ = _hotpot(experiment)
        model = DenseModel.load(dense_model_folder("multi-task-bge-small-en"))
        by_id = {passage.passage_id: passage for passage in passages}
        queries = [f"{hop.question} {by_id[hop.first].title} {by_id[hop.first].text}" for hop in hops]
        ranked = _nearest(model.encode_questions(queries), model.encode_passages(passages)[:, 0], passages)
        return {
            "BM25": _hits_of(_searched(index, queries), hops, "HotpotQA"),
            "multi-task-bge-small-en": _hits_of(ranked, hops, "HotpotQA"),
        }

    experiment.measure(["BM25", "multi-task-bge-small-en"], f"{located.label}, oracle first hop", measure)


def _searched(index: Path, queries: Sequence[str]) -> list[list[str]]:
    """Return the ids of BM25's 101 best passages for each query."""
    from sparta.search.searcher import Searcher

    with Searcher(index, channel="bm25") as searcher:
        run = searcher.run(queries, list(map(str, range(len(queries)))), 101)
    return [[hit.passage_id for hit in run.get(str(n), ())] for n in range(len(queries))]


def _nearest(questions: Any, vectors: Any, passages: Sequence[Passage]) -> list[list[str]]:
    """Return the ids of the 101 passages with the highest dot products, for each question."""
    order = (-(questions @ vectors.T)).argsort(axis=1, kind="stable")[:, :101]
    return [[passages[row].passage_id for row in rows] for rows in order.tolist()]


def _hits_of(ranked: Sequence[Sequence[str]], hops: Sequence[TwoHops], column: str) -> dict[str, Any]:
    """Return the share of questions whose second passage is among the 20 and 100 best, without the first."""
    rest = [[i for i in ids if i != hop.first] for ids, hop in zip(ranked, hops, strict=True)]
    return {
        f"{column} Top-{k}": 100
        * sum(h.second in ids[:k] for ids, h in zip(rest, hops, strict=True))
        / len(hops)
        for k in (20, 100)
    }


def table_rows(experiment: Experiment) -> None:
    """Measure table 3: answer recall on OTT-QA, by the chain from table rows to pages, and by BM25."""
    _chains(experiment, ["tabletext"], _ott, {f"Top-{k}": f"answer_recall@{k}" for k in (20, 50, 100)})


def passage_pairs(experiment: Experiment) -> None:
    """Measure table 4: passage EM on HotpotQA, by the shipped chains and by BM25."""
    _chains(experiment, ["hop", "hop-read"], _hotpot, {"Passage EM": "passage_EM"})


def table_answers(experiment: Experiment) -> None:
    """Measure table 8: EM and F1 on OTT-QA, with the passages of the chain from table rows to pages."""
    _chains(experiment, ["tabletext"], _ott, {"EM": "EM", "F1": "F1"}, answers=True)


def supporting(experiment: Experiment) -> None:
    """Measure table A3: answers, supporting sentences and joint measures, by the chain that reads paths."""
    measures = {"Ans EM": "EM", "Ans F1": "F1"}
    if experiment.located("hotpot-facts"):
        measures |= {
            "Sup EM": "sup_EM",
            "Sup F1": "sup_F1",
            "Joint EM": "joint_EM",
            "Joint F1": "joint_F1",
        }
    _chains(experiment, ["hop-read"], _hotpot, measures, answers=True)


def _ott(experiment: Experiment) -> tuple[Path, QuestionSet]:
    """Return an index of pages and table rows, and the questions within the cut."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import index_of, sampled

    questions = sampled(questions_of(experiment.path("ott")), experiment)
    texts = [*_texts(experiment), experiment.path("ott-tables")]
    return index_of(experiment, "ott", texts, [questions], "bm25"), questions


def _chains(
    experiment: Experiment,
    chains: Sequence[str],
    data: Any,
    measures: Mapping[str, str],
    *,
    answers: bool = False,
) -> None:
    """Measure shipped chains beside BM25, in one row each.

    :param data: returns the index and the questions
    :param measures: the measure of each column
    """
    source = "ott" if data is _ott else "hotpot"
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
            answering = _reader() if answers else None
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


def _reader() -> Answering:
    """Return the shipped reader, which reads ten passages."""
    from hybrid.evaluation.answering import Answering
    from sparta.reader.config import reader_folder
    from sparta.reader.reader import Reader

    return Answering(Reader.open(reader_folder(None, "en")), [10])


def nq_answers(experiment: Experiment) -> None:
    """Measure table A2: EM on NQ of the shipped reader, with the passages of each ranking."""
    from hybrid.evaluation.compare import compare
    from hybrid.replications.tables.collection import ALL_CHANNELS, ALL_SETS, index_of
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion

    sets, located = open_sets(experiment, {"NQ": "nq-test"}), experiment.located("nq-test")
    assert located is not None
    fusion = Fusion({"dense": 1.0, "impact": 1.0})
    names = {"bm25": "BM25 + shipped reader", fusion.label: "dense + impact + shipped reader"}

    def measure() -> Mapping[str, Figures]:
        names_of_texts = [name for name in ("wikipedia", "squad-texts") if experiment.located(name)]
        texts = [experiment.path(name) for name in names_of_texts]
        index = index_of(experiment, ALL_SETS, texts, [sets["NQ"]], ALL_CHANNELS)
        with Channels(index, ALL_CHANNELS.split(",")) as channels:
            results = compare(
                channels, sets["NQ"], [fusion], answering=_reader(), measures=["answer_recall@20"]
            )
        return {
            names[e.name]: {"EM": 100 * e.mean("EM"), "F1": 100 * e.mean("F1")}
            for e in results.evaluations
            if e.name in names
        }

    experiment.measure(list(names.values()), located.label, measure)


FORMS: dict[str, dict[str, Any]] = {
    "No Expert": {"placement": "none"},
    "FFN Expert (naive)": {"placement": "feed-forward", "assignment": "naive"},
    "MHA Expert (naive)": {"assignment": "naive"},
    "MHA Expert (COS)": {},
}
"""The models of table 6, and how each differs from the paper's model."""


def ablations(experiment: Experiment) -> None:
    """Measure table 6: train one model per form; recall of the first and of the second passage.

    The recall is of retrieval alone: with the question for any gold passage, and with the question and the
    first passage for the second passage.
    """
    label = _label_of_training(experiment)
    for name in FORMS:
        experiment.row(name, label, partial(_ablation, experiment, name))


def _ablation(experiment: Experiment, name: str) -> Figures:
    """Return the figures of a form: its size, and the recall of both hops."""
    from dense.models.bi_encoder import DenseModel

    model = DenseModel.load(_trained(experiment, name))
    assert model.config.skills is not None
    experts = model.config.skills.experts
    hops, passages = _two_hops(experiment)
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    return {
        "million parameters": size,
        **_of_experts(model, hops, passages, experts["question"], experts["passage"], "single"),
        **_of_experts(model, hops, passages, experts["expanded"], experts["passage"], "expanded"),
    }


def swapped(experiment: Experiment) -> None:
    """Measure table 7: each query with the experts of other inputs, in the index of passages or entities."""
    from dense.models.bi_encoder import DenseModel

    label = _label_of_training(experiment)
    for kind in ("single", "expanded"):
        for query, document in ((0, 1), (4, 1), (2, 1), (2, 3)):

            def measure(kind: str = kind, query: int = query, document: int = document) -> Figures:
                model = DenseModel.load(_trained(experiment, "MHA Expert (COS)"))
                hops, passages = _two_hops(experiment)
                figures = _of_experts(model, hops, passages, query, document, kind)
                return {column.removeprefix(f"{kind} "): value for column, value in figures.items()}

            experiment.row(f"{kind}, query {query}, document {document}", label, measure)


def _of_experts(
    model: DenseModel,
    hops: Sequence[TwoHops],
    passages: Sequence[Passage],
    query: int,
    document: int,
    kind: str,
) -> dict[str, Any]:
    """Return the recall at 20 and 100 of queries and passages that these experts encode.

    :param kind: `single`: the question, for any of the two passages; `expanded`: the question and its first
        passage, for the second passage
    """
    from dense.models.batches import first_windows
    from dense.models.skill_inputs import pair_input

    by_id = {passage.passage_id: passage for passage in passages}
    config, tokenizer = model.config, model.tokenizer
    if kind == "single":
        inputs = [config.question_input(hop.question, tokenizer) for hop in hops]
    else:
        inputs = [pair_input(hop.question, by_id[hop.first], tokenizer, config) for hop in hops]
    vectors = model.encode_inputs(document, first_windows(passages, config.layout, tokenizer))
    ranked = _nearest(model.encode_inputs(query, inputs), vectors, passages)
    if kind == "expanded":
        return _hits_of(ranked, hops, kind)
    return {
        f"{kind} Top-{k}": 100
        * sum(not {hop.first, hop.second}.isdisjoint(ids[:k]) for ids, hop in zip(ranked, hops, strict=True))
        / len(hops)
        for k in (20, 100)
    }


def _label_of_training(experiment: Experiment) -> str:
    located = [experiment.located(name) for name in ("hotpot", "hotpot-train")]
    return "; trained on ".join(item.label for item in located if item)


def _trained(experiment: Experiment, form: str) -> Path:
    """Train the five skills on HotpotQA's questions and hyperlinks; return the model's folder."""
    from dense.training.skill_data import SkillFile, read_skill_sets
    from dense.training.skill_train import SkillRecipe, train_skills

    questions, steps = experiment.path("hotpot-train"), experiment.cut.steps or 40 * 90_447 // BATCH
    files = [SkillFile(skill, questions) for skill in ("single", "expanded", "rerank")]
    if links := experiment.located("hyperlinks"):
        files += [SkillFile(skill, links.path) for skill in ("span", "link")]
    batch = SMALL_BATCH if experiment.cut.steps else BATCH
    sets = read_skill_sets(files, _texts(experiment), batch)
    recipe = SkillRecipe(
        encoder=str(experiment.encoder),
        steps=steps,
        learning_rate=2e-5 if experiment.cut.steps is None else 1e-4,
        period=experiment.period(2),
        validate_every=max(1, steps // 4),
        seed=experiment.seed,
        device=experiment.device,
        **FORMS[form],
    )
    folder = experiment.folder.parent / "shared" / f"skills-{'-'.join(form.lower().split())}-{steps}"
    return train_skills(sets, recipe, folder, resume=True).folder


_OURS = "Our rows measure shipped models and chains, not a model that was trained as in the paper."
_KILT = ("hotpot", "kilt-passages")

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
        gaps=(_OURS, "HotpotQA's column counts questions whose second passage is found."),
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
        gaps=(_OURS,),
    ),
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
        gaps=(_OURS,),
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
        sources=_KILT,
        gaps=(_OURS,),
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
        gaps=(_OURS,),
    ),
    PaperTable(
        name="cos-6",
        number="6",
        title="Ablations of experts on HotpotQA",
        figures=rows_of(
            "million parameters, chain Top-20, chain Top-10, retrieval-only Top-20, retrieval-only Top-10",
            {
                "No Expert": (111.0, 90.2, 92.4, None, None),
                "FFN Expert (naive)": (252.0, 91.3, 93.4, None, None),
                "MHA Expert (naive)": (182.0, 92.0, 94.0, 82.8, 87.0),
                "MHA Expert (COS)": (182.0, 92.0, 93.4, 85.9, 89.6),
                "Multi-hop Retriever": (110.0, None, None, 85.1, 88.9),
            },
        ),
        measure=ablations,
        sources=(*_KILT, "hotpot-train"),
        trains=True,
        gaps=("Our columns measure retrieval alone, hop by hop, not the chain of the trained models.",),
    ),
    PaperTable(
        name="cos-7",
        number="7",
        title="Inputs that other experts encode",
        figures=rows_of(
            "Top-20, Top-100",
            {
                "single, query 0, document 1": (96.1, 98.2),
                "single, query 4, document 1": (90.1, 95.2),
                "single, query 2, document 1": (91.8, 95.9),
                "single, query 2, document 3": (87.4, 92.7),
                "expanded, query 0, document 1": (94.2, 97.0),
                "expanded, query 4, document 1": (95.3, 97.4),
                "expanded, query 2, document 1": (74.5, 85.8),
                "expanded, query 2, document 3": (67.3, 79.6),
            },
        ),
        measure=swapped,
        sources=(*_KILT, "hotpot-train", "hyperlinks"),
        trains=True,
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
        gaps=(_OURS, "The shipped reader is not a Fusion-in-Encoder."),
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
        gaps=(_OURS, "The shipped reader is not a Fusion-in-Encoder."),
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
        sources=_KILT,
        gaps=(_OURS, "Supporting sentences need HotpotQA's JSON and a path reader trained on it."),
    ),
)
