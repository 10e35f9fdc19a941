"""The tables of SPARTA: open-domain answers, retrieval of sentences, terms, sparsity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of

if TYPE_CHECKING:
    from hybrid.evaluation.testsets import QuestionSet
    from sparta.models.model import SparseModel
    from sparta.reader.reader import Reader
    from sparta.training.options import TrainOptions
    from sparta.training.paragraphs import ParagraphSet

READ = 10
"""The number of passages that the reader reads."""
LENGTH = 512
"""The longest input of the paper's models, in wordpieces (§4)."""
KS = (50, 100, 500, 1000, 1500, 2000)
NO_USE_QA = "USE-QA is not available offline."
NO_TRAINING = "The cost of a row is that of its measurement; the trainings come on top."


def open_answers(experiment: Experiment) -> None:
    """Measure table 1: EM and F1 of answers from Wikipedia, by SPARTA and by BM25."""
    _open(experiment, {"SQuAD": "squad", "NQ dev": "nq-dev", "NQ test": "nq-test"}, "wikipedia", "en")


def chinese_answers(experiment: Experiment) -> None:
    """Measure table 2: EM and F1 of answers from Chinese Wikipedia, with the paragraphs of one set each."""
    for column, source in {"CMRC": "cmrc", "DRCD": "drcd"}.items():
        if experiment.located(source):
            _open(experiment, {column: source}, "wikipedia-zh", "zh")


def _open(experiment: Experiment, sets: Mapping[str, str], collection: str, language: str) -> None:
    """Measure answers of sets in one collection; the passages of sets that have any are part of it."""
    from hybrid.evaluation.questions import questions_of
    from hybrid.replications.tables.collection import index_of, sampled

    passages = experiment.located(collection)
    assert passages is not None
    known = {column: located for column, source in sets.items() if (located := experiment.located(source))}
    questions = {column: sampled(questions_of(located.path), experiment) for column, located in known.items()}
    names = [sets[column] for column in known]
    texts = [
        _texts_of(located.path, experiment.folder / f"{name}-texts.jsonl")
        for name, located in zip(names, known.values(), strict=True)
    ]
    corpora = [passages.path, *filter(None, texts)]
    for column, located in known.items():

        def measure(column: str = column) -> Mapping[str, Figures]:
            name, asked = next(iter(known)).split()[0], list(questions.values())
            index = index_of(experiment, name, corpora, asked, "impact,bm25", language)
            return _answered(experiment.parts.reader(language), index, questions[column], column)

        experiment.measure(["SPARTA", "BM25"], f"{located.label}; passages of {passages.label}", measure)


def _texts_of(questions: Path, path: Path) -> Path | None:
    """Write the paragraphs of a SQuAD JSON or a BEIR folder as JSON lines; None if it has no texts."""
    import gzip
    import json

    from sparta.base.files import atomic_write, plain_name
    from sparta.data.qa_formats import read_squad

    if questions.is_dir():
        return questions / "corpus.jsonl"
    if not plain_name(questions.name).endswith(".json"):
        return None
    texts = dict.fromkeys((paragraph.title, paragraph.text) for paragraph in read_squad(questions))
    lines = (
        json.dumps({"_id": f"q{n}", "title": title, "text": text}, ensure_ascii=False) + "\n"
        for n, (title, text) in enumerate(texts)
    )
    target = path.with_name(f"{path.name}.gz")
    atomic_write(target, gzip.compress("".join(lines).encode(), mtime=0))
    return target


def _answered(reader: Reader, index: Path, questions: QuestionSet, column: str) -> dict[str, Figures]:
    """Return EM, F1 and answer recall of the index's channels."""
    from hybrid.evaluation.answering import Answering
    from hybrid.evaluation.compare import compare
    from hybrid.retrieval.channels import Channels

    answering = Answering(reader, [READ])
    with Channels(index, ["impact", "bm25"]) as channels:
        results = compare(channels, questions, (), answering=answering, measures=["answer_recall@20"])
    names = {"impact": "SPARTA", "bm25": "BM25"}
    measures = {"EM": "EM", "F1": "F1", "answer recall@20": "answer_recall@20"}
    return {
        names[e.name]: {f"{column} {shown}": 100 * e.mean(name) for shown, name in measures.items()}
        for e in results.evaluations
    }


IN_DOMAIN = {
    "SQuAD": "reqa-squad",
    "News": "reqa-news",
    "Trivia": "reqa-trivia",
    "NQ": "reqa-nq",
    "HotPot": "reqa-hotpot",
}
OUT_OF_DOMAIN = {
    **IN_DOMAIN,
    "Bio": "reqa-bioasq",
    "DROP": "reqa-drop",
    "DuoRC": "reqa-duorc",
    "RACE": "reqa-race",
    "RE": "reqa-re",
    "Text": "reqa-text",
}


def reqa(experiment: Experiment) -> None:
    """Measure table 4 or 5: MRR of sentences, by BM25, the shipped model, and trained models.

    SPARTA and the Poly-Encoder start from the experiment's encoder and train on the same questions with the
    same number of steps: of SQuAD, and for table 5 also of SQuAD and NQ. Table 4 of the paper trains on each
    domain; here all trained models learn from SQuAD alone, so its other columns are out of domain.
    """
    trainings: dict[str, tuple[str, ...]] = {"": ("squad-train",)}
    if experiment.table.number == "5":
        trainings = {" on SQuAD": ("squad-train",), " on SQuAD + NQ": ("squad-train", "nq-train")}
    for suffix, sources in trainings.items():
        located = [experiment.located(name) for name in sources]
        labels = [item.label for item in located if item]
        if len(labels) == len(sources):
            paths = [item.path for item in located if item]
            _reqa_of_trained(experiment, suffix, paths, f"trained on {' and '.join(labels)}")
    shipped = "SPARTA, shipped model"
    _each_reqa_set(experiment, ["BM25", shipped], "", partial(_reqa_of, experiment, None, [], [shipped]))


def _reqa_of_trained(experiment: Experiment, suffix: str, paths: Sequence[Path], label: str) -> None:
    """Train SPARTA and the Poly-Encoder on the same files, and measure both on each set."""
    folder = suffix.removeprefix(" on ").lower().replace(" + ", "-") or "squad"
    sparta = _sparta_of_paper(experiment, paths, experiment.folder / f"sparta-{folder}")
    poly = _poly_encoder(experiment, paths, experiment.folder / f"poly-encoder-{folder}")
    names = [f"SPARTA{suffix}", f"Poly-Encoder{suffix}"]
    _each_reqa_set(experiment, names, label, partial(_reqa_of, experiment, sparta, [poly], names))


def _each_reqa_set(
    experiment: Experiment, names: Sequence[str], label: str, mrr: Callable[[Path], Mapping[str, float]]
) -> None:
    """Measure the MRR of rows on each set that the data have.

    :param mrr: returns the MRR of the rows, from the folder of a test set
    """
    columns = OUT_OF_DOMAIN if experiment.table.number == "5" else IN_DOMAIN
    for column, source in columns.items():
        located = experiment.test_set(source)
        if located is None:
            continue
        _, folder, set_label = located

        def measure(folder: Path = folder, column: str = column) -> Mapping[str, Figures]:
            values = mrr(folder)
            return {name: {column: values[name]} for name in names}

        experiment.measure(names, "; ".join(filter(None, (set_label, label))), measure)


def _reqa_of(
    experiment: Experiment, model: Path | None, dense: Sequence[Path], names: Sequence[str], folder: Path
) -> dict[str, float]:
    """Return the MRR in percent of SPARTA, of Poly-Encoders, and of BM25, by row."""
    results = experiment.parts.mrr(folder, model, dense)
    rows = dict(zip(["impact", *map(str, dense)], names, strict=True)) | {"bm25": "BM25"}
    return {rows[e.name]: 100 * e.mean("RR") for e in results.evaluations}


def _training_sets(paths: Sequence[Path], recipe: TrainOptions) -> list[ParagraphSet]:
    from sparta.training.paragraphs import longest_words, open_set

    return [open_set(path, "pairs", 12, longest_words(recipe.train_length)) for path in paths]


def _settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of both trainings: the paper's steps and lengths (§4), unless steps are cut."""
    steps = experiment.cut.steps or 10_000
    lengths = {} if experiment.cut.steps else {"max_length": LENGTH, "train_length": LENGTH}
    return {
        "encoder": str(experiment.encoder),
        "steps": steps,
        "validate_every": max(1, steps // 4),
        "seed": experiment.seed,
        "device": experiment.device,
        **lengths,
    }


def _sparta_of_paper(experiment: Experiment, paths: Sequence[Path], output: Path) -> Path:
    """Train SPARTA by the paper's recipe; return the model's folder."""
    from sparta.training.options import SpartaRecipe
    from sparta.training.train import train_model

    recipe = SpartaRecipe(**_settings(experiment), learning_rate=3e-5, paper=True)
    return experiment.parts.train(train_model, _training_sets(paths, recipe), recipe, output)


def _poly_encoder(experiment: Experiment, paths: Sequence[Path], output: Path) -> Path:
    """Train a Poly-Encoder with four vectors per answer; return the model's folder."""
    from dense.training.train import Recipe, train_dense

    recipe = Recipe(**_settings(experiment), codes=4, shared=False)
    return experiment.parts.train(train_dense, _training_sets(paths, recipe), recipe, output)


ANSWERS = {
    "Google": (
        "Google was founded in September 1998",
        "Google was founded in September 1998 by Larry Page and Sergey Brin while they were Ph.D. students at"
        " Stanford University in California.",
    ),
    "Yellowstone": (
        "with parts in Wyoming, Montana and Idaho",
        "Yellowstone National Park is an American national park located in the western United States,"
        " with parts in Wyoming, Montana and Idaho.",
    ),
    "Gates": (
        "William Henry Gates is an American business magnate, software developer, investor, and"
        " philanthropist",
        "William Henry Gates is an American business magnate, software developer, investor, and"
        " philanthropist. He is best known as the co-founder of Microsoft Corporation.",
    ),
    "Question answering": (
        "Question answering (QA)",
        "Question answering (QA) is a computer science discipline within the fields of information retrieval"
        " and natural language processing (NLP).",
    ),
}
"""The answers of table 6, each with its context."""


def terms(experiment: Experiment) -> None:
    """Measure table 6: the strongest terms of the paper's four answers, and the number of non-zero terms."""
    from sparta.base.records import Passage
    from sparta.models.load import load_model

    def measure() -> Mapping[str, Figures]:
        model = load_model()
        figures: dict[str, Figures] = {}
        for name, (answer, context) in ANSWERS.items():
            start = context.index(answer)
            passage = Passage(name, answer, "", context, start, start + len(answer))
            strongest, n = _strongest(model, passage)
            figures[name] = {"top terms": ", ".join(strongest), "non-zero terms": n}
        mean = fmean(int(str(f["non-zero terms"])) for f in figures.values())
        return {**figures, "mean": {"non-zero terms": round(mean)}}

    experiment.measure([*ANSWERS, "mean"], "the paper's answers, shipped model", measure)


def _strongest(model: SparseModel, passage: object) -> tuple[list[str], int]:
    """Return a passage's 14 strongest terms, and its number of non-zero terms."""
    row = model.encode_document([passage])  # type: ignore[list-item]
    order = row.data.argsort()[::-1][:14]
    return [str(model.tokenizer.id_to_token(int(row.indices[i]))) for i in order], int(row.nnz)


def sparsity(experiment: Experiment) -> None:
    """Measure table 7: MRR and R@1 of sentences with the K strongest terms of each."""
    from hybrid.evaluation.sweep import sweep
    from sparta.models.load import load_model
    from sparta.shards.encode import EncodeOptions

    for column, source in (("SQuAD", "reqa-squad"), ("NQ", "reqa-nq")):
        located = experiment.test_set(source)
        if located is None:
            continue
        questions, _, label = located

        def measure(questions: QuestionSet = questions, column: str = column) -> Mapping[str, Figures]:
            measures = ["RR", "Success@1"]
            pruned = sweep(
                questions, load_model(), EncodeOptions(), KS, measures=measures, lexical_terms=False
            )
            return {
                _kept(result.top_k): {
                    f"{column} MRR": 100 * result.evaluation.mean("RR"),
                    f"{column} R@1": 100 * result.evaluation.mean("Success@1"),
                    f"{column} terms": result.mean_terms,
                }
                for result in pruned
            }

        experiment.measure([_kept(k) for k in (*KS, None)], f"{label}, shipped model", measure)


def _kept(k: int | None) -> str:
    """Return the name of the row with this many terms."""
    return "all terms" if k is None else f"{k:,} terms"


TABLES = (
    PaperTable(
        name="sparta-1",
        number="1",
        title="OpenSQuAD and OpenNQ: answers from Wikipedia",
        figures=rows_of(
            "SQuAD F1, SQuAD EM, NQ dev EM, NQ test EM",
            {
                "BERT + BM25": (None, None, 24.8, 26.5),
                "Graph retriever": (63.8, 56.5, 31.7, 32.6),
                "SPARTA": (66.5, 59.3, 36.8, 37.5),
            },
        ),
        measure=open_answers,
        sources=("wikipedia",),
        any_of=("squad", "nq-dev", "nq-test"),
        gaps=("The paragraphs of SQuAD are part of the collection.",),
    ),
    PaperTable(
        name="sparta-2",
        number="2",
        title="OpenCMRC and OpenDRCD: answers from Chinese Wikipedia",
        figures=rows_of(
            "CMRC F1, CMRC EM, DRCD F1, DRCD EM",
            {
                "BERTserini": (60.9, 44.5, 65.0, 50.7),
                "BERTserini+DS": (64.6, 48.6, 67.7, 55.4),
                "SPARTA": (79.9, 62.9, 74.6, 63.1),
            },
        ),
        measure=chinese_answers,
        sources=("wikipedia-zh",),
        any_of=("cmrc", "drcd"),
        gaps=("The paragraphs of CMRC and DRCD are part of the collection.",),
    ),
    PaperTable(
        name="sparta-4",
        number="4",
        title="ReQA in domain: MRR of sentences",
        figures=rows_of(
            "SQuAD, News, Trivia, NQ, HotPot, Avg",
            {
                "BM25": (58.0, 19.4, 29.0, 19.7, 23.9, 30.0),
                "USE-QA": (62.5, 26.2, 41.2, 58.2, 25.5, 42.7),
                "Poly-Encoder": (64.6, 28.3, 39.5, 69.9, 51.8, 50.8),
                "SPARTA": (78.5, 46.6, 55.5, 77.1, 63.8, 64.3),
            },
        ),
        measure=reqa,
        sources=("squad-train",),
        any_of=tuple(IN_DOMAIN.values()),
        trains=True,
        gaps=(NO_USE_QA, "Our trained models learn from SQuAD alone, not from each domain.", NO_TRAINING),
    ),
    PaperTable(
        name="sparta-5",
        number="5",
        title="ReQA out of domain: MRR of sentences",
        figures=rows_of(
            "SQuAD, News, Trivia, NQ, HotPot, Bio, DROP, DuoRC, RACE, RE, Text, Avg",
            {
                "BM25": (58.0, 19.4, 29.0, 19.7, 23.9, 8.9, 32.6, 20.1, 14.8, 87.4, 21.6, 30.5),
                "USE-QA": (62.5, 26.2, 41.2, 58.2, 25.5, 7.7, 31.9, 20.8, 25.6, 84.8, 26.4, 37.4),
                "Poly-Encoder on SQuAD": (
                    *(64.6, 22.2, 35.9, 57.6, 26.5, 9.1, 32.6, 25.4, 24.7, 88.3, 26.0, 37.5),
                ),
                "SPARTA on SQuAD": (
                    *(78.5, 41.2, 45.8, 62.0, 47.7, 14.5, 37.2, 35.9, 29.7, 96.0, 28.7, 47.0),
                ),
                "Poly-Encoder on SQuAD + NQ": (
                    *(63.9, 19.8, 36.9, 69.7, 29.6, 8.8, 30.7, 19.6, 25.2, 72.8, 24.6, 36.5),
                ),
                "SPARTA on SQuAD + NQ": (
                    *(79.0, 40.3, 47.6, 75.8, 47.5, 15.0, 37.9, 36.3, 30.0, 97.0, 29.3, 48.7),
                ),
            },
        ),
        measure=reqa,
        sources=("squad-train",),
        any_of=tuple(OUT_OF_DOMAIN.values()),
        trains=True,
        gaps=(NO_USE_QA, "The rows on SQuAD + NQ also need NQ's training set.", NO_TRAINING),
    ),
    PaperTable(
        name="sparta-6",
        number="6",
        title="The strongest terms of four answers",
        figures={
            "Google": {
                "top terms": "google, when, founded, page, stanford, sergey, larry, founding, established,"
                " did, 1998, was, year, formed"
            },
            "Yellowstone": {
                "top terms": "montana, yellowstone, wyoming, idaho, park, where, national, western,"
                " american, us, utah"
            },
            "Gates": {
                "top terms": "who, gates, investors, magnate, developer, microsoft, philanthropist,"
                " benefactor, investors"
            },
            "Question answering": {
                "top terms": "answering, question, q, computer, information, retrieval, language, natural,"
                " human, nl, science"
            },
            "mean": {"non-zero terms": 1600},
        },
        measure=terms,
    ),
    PaperTable(
        name="sparta-7",
        number="7",
        title="Sparsity: MRR and R@1 of sentences with the K strongest terms",
        figures=rows_of(
            "SQuAD MRR, SQuAD R@1, NQ MRR, NQ R@1",
            {
                "50 terms": (69.5, 61.3, 63.2, 52.5),
                "100 terms": (72.3, 64.4, 65.6, 55.7),
                "500 terms": (76.9, 69.4, 74.4, 64.3),
                "1,000 terms": (78.2, 70.8, 75.5, 65.6),
                "1,500 terms": (78.6, 71.2, 75.7, 65.7),
                "2,000 terms": (78.9, 71.4, 75.9, 66.0),
                "all terms": (79.0, 71.6, 75.8, 66.0),
            },
        ),
        measure=sparsity,
        any_of=("reqa-squad", "reqa-nq"),
    ),
)
