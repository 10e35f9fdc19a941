"""The tables of TASER: retrieval in and out of domain, variants, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet

SHIPPED = "taser-det-en"
CANDIDATES = 100
RECALLS = ("answer_recall@20", "answer_recall@100")

BERT_BASE = {"model_type": "bert"}
"""BERT-base: the defaults of BERT's configuration, with 12 layers of width 768."""
ROBERTA_LARGE = {
    "model_type": "roberta",
    "vocab_size": 50_265,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}


def parameters(experiment: Experiment) -> None:
    """Count table A3: the parameters of each model's encoders, without poolers and without data."""

    def measure() -> Mapping[str, Figures]:
        return {name: {"million parameters": count / 1e6} for name, count in parameter_counts().items()}

    names = ["DPR", "coCondenser", "xMoCo", "SPAR-Wiki; SPAR-PAQ", "DPR-PAQ", "TASER"]
    experiment.measure(names, "encoders of the published sizes", measure)


def parameter_counts() -> dict[str, int]:
    """Return the number of parameters of each model of table A3, counted in encoders without values."""
    from dense.models.experts import specialize

    bert, taser, large = _encoder(BERT_BASE), _encoder(BERT_BASE), _encoder(ROBERTA_LARGE)
    specialize(taser, 2, "det", 3)
    two = 2 * _count(bert)
    return {
        "DPR": two,
        "coCondenser": two,
        "xMoCo": two,
        "SPAR-Wiki; SPAR-PAQ": 2 * two,  # two bi-encoders, one of which imitates a lexical model
        "DPR-PAQ": 2 * _count(large),
        "TASER": _count(taser),
    }


def _encoder(config: Mapping[str, Any]) -> Any:
    """Return an encoder whose parameters have shapes but no values."""
    import torch
    from transformers import AutoConfig, AutoModel

    kind = dict(config)
    with torch.device("meta"):
        settings = AutoConfig.for_model(kind.pop("model_type"), **kind)
        return AutoModel.from_config(settings, add_pooling_layer=False)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


OPEN_SETS = {"NQ": "nq-test", "TQ": "trivia", "WQ": "webquestions", "CT": "trec", "SQuAD": "squad"}


def in_domain(experiment: Experiment) -> None:
    """Measure table 1 or A2: answer recall of BM25, the shipped TASER and their fusion, on five sets."""
    from hybrid.replications.tables.collection import ALL_SETS, index_of, wikipedia_texts

    shown = ("@20",) if experiment.table.number == "1" else ("@20", "@100")
    sets = open_sets(experiment, OPEN_SETS)
    dev = open_sets(experiment, {"dev": "nq-dev"})
    passages = wikipedia_texts(experiment)
    labels = [located.label for name in OPEN_SETS.values() if (located := experiment.located(name))]

    def measure() -> Mapping[str, Figures]:
        index = index_of(experiment, ALL_SETS, passages, [*sets.values(), *dev.values()], "bm25,dense")
        return _fused(index, sets, dev.get("dev"), shown)

    names = ["BM25", "TASER, shipped model", "TASER + BM25, shipped model"]
    experiment.measure(names, "; ".join(labels), measure)


def open_sets(experiment: Experiment, sources: Mapping[str, str]) -> dict[str, QuestionSet]:
    """Return the question sets that the data have, within the cut, by column."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import sampled

    opened = {}
    for column, source in sources.items():
        if located := experiment.located(source):
            skip = 6000 if located.path.name == "trivia.dev.tsv" else 0  # the lines before may be trained on
            questions = sampled(questions_of(located.path), experiment, skip=skip)
            match = "regex" if source == "trec" else "string"
            opened[column] = replace(questions, name=column, match=match, qrels={})
    return opened


def _fused(
    index: Path, sets: Mapping[str, QuestionSet], dev: QuestionSet | None, shown: tuple[str, ...]
) -> dict[str, Figures]:
    """Return answer recall by row; one weight of BM25 for all sets is chosen on the dev set."""
    from hybrid.evaluation.compare import compare
    from hybrid.evaluation.tune import ALPHAS, best_fusion, tune
    from hybrid.retrieval.channels import Channels
    from hybrid.retrieval.fusion import Fusion

    fusion = Fusion({"dense": 1.0, "bm25": 1.0}, candidates=CANDIDATES)
    figures: dict[str, dict[str, Any]] = {}
    with Channels(index, ["bm25", "dense"]) as channels:
        if dev:
            fusion = best_fusion(fusion, tune(channels, [dev], fusion, RECALLS[0], alphas=ALPHAS))
        names = {"bm25": "BM25", "dense": "TASER, shipped model", fusion.label: "TASER + BM25, shipped model"}
        for column, questions in sets.items():
            results = compare(channels, questions, [fusion], measures=RECALLS)
            for evaluation in results.evaluations:
                row = figures.setdefault(names[evaluation.name], {})
                for at in shown:
                    row[f"{column} {at}"] = 100 * evaluation.mean(f"answer_recall{at}")
    figures[names[fusion.label]]["weight of BM25"] = fusion.weights["bm25"]
    return dict(figures)


BEIR = {"AA": "beir-arguana", "DBP": "beir-dbpedia", "FEV": "beir-fever", "HQA": "beir-hotpotqa"}


def out_of_domain(experiment: Experiment) -> None:
    """Measure table 2 or A4: EntityQuestions (micro and macro), and nDCG@10 of BEIR's sets."""
    from hybrid.evaluation.evaluate import evaluate_set
    from sparta.shards.encode import EncodeOptions

    _entities(experiment)
    for column, source in BEIR.items() if experiment.table.number == "2" else ():
        opened = experiment.test_set(source)
        if opened is None:
            continue
        _, folder, label = opened

        def measure(folder: Path = folder, column: str = column) -> Mapping[str, Figures]:
            results = evaluate_set(
                folder, None, EncodeOptions(), channels=["bm25"], dense=[SHIPPED], measures=["nDCG@10"]
            )
            names = {"bm25": "BM25", SHIPPED: "TASER, shipped model"}
            return {
                names[e.name]: {f"{column} nDCG@10": 100 * e.mean("nDCG@10")} for e in results.evaluations
            }

        experiment.measure(["BM25", "TASER, shipped model"], label, measure)


def _entities(experiment: Experiment) -> None:
    """Measure EntityQuestions, if the data have it."""
    from hybrid.evaluation.compare import compare, with_macro
    from hybrid.replications.tables.collection import index_of
    from hybrid.retrieval.channels import Channels

    sets = open_sets(experiment, {"EQ": "entities"})
    located = experiment.located("entities")
    if located is None or not experiment.located("wikipedia"):
        return

    def measure() -> Mapping[str, Figures]:
        index = index_of(experiment, "entities", [experiment.path("wikipedia")], [sets["EQ"]], "bm25,dense")
        with Channels(index, ["bm25", "dense"]) as channels:
            micro, macro = with_macro(compare(channels, sets["EQ"], (), measures=RECALLS), sets["EQ"])
        names = {"bm25": "BM25", "dense": "TASER, shipped model"}
        return {
            names[a.name]: {
                "EQ macro R@20": 100 * b.mean(RECALLS[0]),
                "EQ micro R@20": 100 * a.mean(RECALLS[0]),
                "EQ micro R@100": 100 * a.mean(RECALLS[1]),
            }
            for a, b in zip(micro.evaluations, macro.evaluations, strict=True)
        }

    experiment.measure(["BM25", "TASER, shipped model"], located.label, measure)


VARIANTS: dict[str, dict[str, Any]] = {
    "DPR": {"shared": False, "routing": ""},
    "TASER Shared": {"routing": ""},
    "TASER Det-R": {"routing": "det"},
    "TASER Seq-R, 2 experts": {"routing": "seq"},
    "TASER Seq-R, 4 experts": {"routing": "seq", "experts": 4},
    "TASER Tok-R, 2 experts": {"routing": "tok"},
    "TASER Tok-R, 4 experts": {"routing": "tok", "experts": 4},
    "DPR, mined negatives": {"shared": False, "routing": ""},
    "TASER Det-R, mined negatives": {"routing": "det"},
}
"""The rows of table A1, and what makes each variant other than the rest."""
BATCH, SMALL_BATCH = 256, 16
"""Paragraphs of a batch: a positive and a hard negative for each question; of a cut training fewer."""


def variants(experiment: Experiment) -> None:
    """Measure table A1: train each variant alike; answer recall@20 on NQ, parameters, and time per epoch."""
    from hybrid.replications.tables.collection import ALL_SETS, index_of, wikipedia_texts

    sets = open_sets(experiment, {"dev R@20": "nq-dev", "test R@20": "nq-test"})
    texts = wikipedia_texts(experiment)
    training = experiment.located("nq-train")
    assert training is not None
    labels = [located.label for name in ("nq-dev", "nq-test") if (located := experiment.located(name))]
    label = "; ".join([f"training on {training.label}", *labels])
    for name, change in VARIANTS.items():

        def measure(name: str = name, change: dict[str, Any] = change) -> Figures:
            folder, seconds = _trained(experiment, name, change, training.path)
            index = index_of(experiment, ALL_SETS, texts, list(sets.values()), "bm25")
            timed = {"seconds per epoch": seconds} if seconds else {}
            return {**dense_recall(folder, index, sets), **_size_of(folder), **timed}

        experiment.row(name, label, measure)


def _trained(experiment: Experiment, name: str, change: Mapping[str, Any], path: Path) -> tuple[Path, float]:
    """Train a variant; return its folder, and the seconds in which the steps read each question once.

    The median step counts, so neither mining nor a pause of the machine changes the time. Of two stages, the
    steps of the second count. A training that was finished before has no time: 0.
    """
    from dense.training.stages import train_in_two_stages
    from dense.training.train import PAPER_RECIPES, Recipe, train_dense
    from sparta.training.paragraphs import open_set

    is_cut = experiment.cut.steps is not None
    batch_size = SMALL_BATCH if is_cut else BATCH
    data = open_set(path, "passages", batch_size)
    steps = experiment.cut.steps or 40 * data.n_questions * 2 // BATCH
    settings = {**PAPER_RECIPES["taser"], "period": experiment.period(3), **change}
    settings["mined"] = not path.name.endswith(".json")  # pairs bring no hard negatives
    recipe = Recipe(
        encoder=str(experiment.encoder),
        steps=steps,
        validate_every=max(1, steps // 4),
        seed=experiment.seed,
        device=experiment.device,
        **settings,
    )
    output = experiment.folder / name.lower().replace(" ", "-").replace(",", "")
    train = train_in_two_stages if name.endswith("mined negatives") else train_dense
    result = train([data], recipe, output, resume=True)
    return result.folder, result.seconds_per_step * data.n_questions * 2 / batch_size


def _size_of(folder: Path) -> Figures:
    """Return the number of a model's parameters, in millions."""
    from dense.models.bi_encoder import DenseModel

    return {"million parameters": _count(DenseModel.load(folder)) / 1e6}


def dense_recall(model: Path | str, index: Path, sets: Mapping[str, QuestionSet], k: int = 20) -> Figures:
    """Return answer recall@k of exact search with a bi-encoder over all passages of an index."""
    from hybrid.evaluation.evaluate import search_exactly
    from hybrid.evaluation.rankings import Holds, answer_recall
    from sparta.search.searcher import Searcher

    with Searcher(index) as searcher:
        passages = list(searcher.live_passages())
    texts = {passage.passage_id: passage.text for passage in passages}
    figures = {}
    for column, questions in sets.items():
        run, _ = search_exactly(model, passages, questions, k)
        holds = Holds(questions.answers, lambda _, i: texts[i], match=questions.match)
        figures[column] = 100 * answer_recall(column, run, holds, [k]).mean(f"answer_recall@{k}")
    return figures


_DOMAIN = {
    "BM25": (62.9, 76.4, 62.4, 80.7, 71.1),
    "DPR (multi-set)": (79.5, 78.9, 75.0, 88.8, 52.0),
    "DPR + BM25": (82.6, 82.6, 77.3, 90.1, 75.1),
    "xMoCo": (82.5, 80.1, 78.2, 89.4, 55.9),
    "SPAR-Wiki": (83.0, 82.6, 76.0, 89.9, 73.0),
    "SPAR-PAQ": (82.7, 82.5, 76.3, 90.3, 72.9),
    "DPR, BERT, no mining": (80.9, 79.6, 74.0, 88.0, 63.1),
    "DPR, BERT": (82.5, 81.8, 77.8, 91.2, 67.0),
    "DPR, coCondenser": (83.7, 82.6, 78.9, 91.6, 68.0),
    "TASER, BERT": (83.6, 82.0, 77.9, 91.1, 69.7),
    "TASER, coCondenser": (84.9, 83.4, 78.9, 90.8, 72.9),
    "TASER + BM25, coCondenser": (85.0, 84.0, 79.6, 92.1, 78.0),
}
_NO_WEIGHTS = (
    "coCondenser's and TASER's published weights are not available offline;"
    " our rows measure the shipped model."
)

TABLES = (
    PaperTable(
        name="taser-1",
        number="1",
        title="Retrieval in domain: answer recall@20 (v1: table 2)",
        figures=rows_of("NQ @20, TQ @20, WQ @20, CT @20, SQuAD @20", _DOMAIN),
        measure=in_domain,
        sources=("wikipedia",),
        any_of=tuple(OPEN_SETS.values()),
        gaps=(_NO_WEIGHTS,),
    ),
    PaperTable(
        name="taser-a2",
        number="A2",
        title="Retrieval in domain: answer recall@20 and @100",
        figures=rows_of(
            "NQ @20, NQ @100, TQ @20, TQ @100, WQ @20, WQ @100, CT @20, CT @100, SQuAD @20, SQuAD @100",
            {
                "BM25": (62.9, 78.3, 76.4, 83.2, 62.4, 75.5, 80.7, 89.9, 71.1, 81.8),
                "DPR (single-set)": (78.4, 85.4, 79.4, 85.0, 73.2, 81.4, 79.8, 89.1, 63.2, 77.2),
                "DPR (multi-set)": (79.5, 86.1, 78.9, 84.8, 75.0, 83.0, 88.8, 93.4, 52.0, 67.7),
                "DPR + BM25": (82.6, 88.6, 82.6, 86.5, 77.3, 84.7, 90.1, 95.0, 75.1, 84.4),
                "TASER, BERT": (83.6, 88.6, 82.0, 86.6, 77.9, 85.4, 91.1, 95.7, 69.7, 81.2),
                "TASER + BM25, BERT": (83.8, 88.6, 83.3, 87.1, 78.7, 85.7, 91.6, 95.8, 77.2, 86.0),
                "TASER, coCondenser": (84.9, 89.2, 83.4, 87.1, 78.9, 85.4, 90.8, 96.0, 72.9, 83.4),
                "TASER + BM25, coCondenser": (85.0, 89.2, 84.0, 87.5, 79.6, 85.8, 92.1, 96.0, 78.0, 87.0),
            },
        ),
        measure=in_domain,
        sources=("wikipedia",),
        any_of=tuple(OPEN_SETS.values()),
        gaps=(_NO_WEIGHTS,),
    ),
    PaperTable(
        name="taser-2",
        number="2",
        title="Retrieval out of domain: EntityQuestions and BEIR (v1: tables 4 and 5)",
        figures=rows_of(
            "EQ macro R@20, AA nDCG@10, DBP nDCG@10, FEV nDCG@10, HQA nDCG@10",
            {
                "BM25": (71.2, 31.5, 31.3, 75.3, 60.3),
                "DPR (multi-set)": (56.7, 17.5, 26.3, 56.2, 39.1),
                "TASER, BERT": (64.7, 32.8, 31.4, 59.6, 50.7),
                "TASER, coCondenser": (66.7, 30.5, 31.6, 58.8, 54.5),
            },
        ),
        measure=out_of_domain,
        any_of=("entities", *BEIR.values()),
        gaps=(_NO_WEIGHTS,),
    ),
    PaperTable(
        name="taser-a4",
        number="A4",
        title="EntityQuestions: micro and macro averages",
        figures=rows_of(
            "EQ macro R@20, EQ micro R@20, EQ micro R@100",
            {
                "BM25": (71.2, 70.8, 79.2),
                "DPR (multi-set)": (56.7, 56.6, 70.1),
                "TASER, BERT": (64.7, 64.3, 76.2),
                "TASER, coCondenser": (66.7, 66.2, 77.9),
            },
        ),
        measure=out_of_domain,
        sources=("wikipedia", "entities"),
        gaps=(_NO_WEIGHTS,),
    ),
    PaperTable(
        name="taser-a1",
        number="A1",
        title="Variants: answer recall@20 on NQ, parameters, time per epoch (v1: table 1)",
        figures=rows_of(
            "dev R@20, test R@20, million parameters",
            {
                "DPR": (None, 78.4, 218.0),
                "TASER Shared": (78.2, 79.3, 109.0),
                "TASER Det-R": (79.2, 80.7, 128.0),
                "TASER Seq-R, 2 experts": (79.2, 80.6, 128.0),
                "TASER Seq-R, 4 experts": (78.4, 80.1, 166.0),
                "TASER Tok-R, 2 experts": (78.5, 79.8, 128.0),
                "TASER Tok-R, 4 experts": (78.5, 79.8, 166.0),
                "DPR, mined negatives": (None, 81.3, 218.0),
                "TASER Det-R, mined negatives": (82.4, 83.7, 128.0),
            },
        ),
        measure=variants,
        sources=("wikipedia", "nq-train"),
        any_of=("nq-dev", "nq-test"),
        trains=True,
        gaps=(
            "In the paper, an epoch with its validation takes 11 minutes with TASER and 15 with DPR, on 16"
            " GPUs. Where the table has our time, it is the median step's for all questions, without"
            " validation, on two cores.",
        ),
    ),
    PaperTable(
        name="taser-a3",
        number="A3",
        title="Numbers of parameters",
        figures=rows_of(
            "million parameters",
            {
                "DPR": (218.0,),
                "coCondenser": (218.0,),
                "xMoCo": (218.0,),
                "SPAR-Wiki; SPAR-PAQ": (436.0,),
                "DPR-PAQ": (710.0,),
                "TASER": (128.0,),
            },
        ),
        measure=parameters,
    ),
)
