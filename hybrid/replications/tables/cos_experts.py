"""The tables of Chain-of-Skills that train models: ablations of experts, and swapped experts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of
from hybrid.replications.tables.two_hops import KILT, TwoHops, hits_of, nearest, two_hops

if TYPE_CHECKING:
    from dense.models.bi_encoder import DenseModel
    from dense.training.skill_data import SkillFile
    from dense.training.skill_examples import SkillSet
    from sparta.base.records import Passage

SMALL_BATCH, BATCH, EPOCHS = 16, 192, 40
LINKED = "Our models also learn from paragraphs with hyperlinks, if the data have them."
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
    hops, passages = two_hops(experiment)
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
                hops, passages = two_hops(experiment)
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
    ranked = nearest(model.encode_inputs(query, inputs), vectors, passages)
    if kind == "expanded":
        return hits_of(ranked, hops, kind)
    return {
        f"{kind} Top-{k}": 100
        * sum(not {hop.first, hop.second}.isdisjoint(ids[:k]) for ids, hop in zip(ranked, hops, strict=True))
        / len(hops)
        for k in (20, 100)
    }


def _label_of_training(experiment: Experiment) -> str:
    located = [experiment.located(name) for name in ("kilt-hotpot", "kilt-hotpot-train")]
    return "; trained on ".join(item.label for item in located if item)


@lru_cache(maxsize=1)
def _sets(files: tuple[SkillFile, ...], texts: tuple[Path, ...], batch_size: int) -> list[SkillSet]:
    """Return the training sets, which all forms share: reading Wikipedia's passages takes a minute."""
    from dense.training.skill_data import read_skill_sets

    return read_skill_sets(files, texts, batch_size)


def _trained(experiment: Experiment, form: str) -> Path:
    """Train the five skills on HotpotQA's questions and hyperlinks; return the model's folder.

    Unless steps are cut, they are the paper's epochs over the examples of all skills (Table A1).
    """
    from dense.training.skill_data import SkillFile
    from dense.training.skill_train import SkillRecipe, train_skills
    from hybrid.replications.tables.collection import kilt_texts

    questions = experiment.path("kilt-hotpot-train")
    files = [SkillFile(skill, questions) for skill in ("single", "expanded", "rerank")]
    if links := experiment.located("hyperlinks"):
        files += [SkillFile(skill, links.path) for skill in ("span", "link")]
    batch = SMALL_BATCH if experiment.cut.steps else BATCH
    sets = _sets(tuple(files), tuple(kilt_texts(experiment)), batch)
    steps = experiment.cut.steps or EPOCHS * sum(len(data.examples) for data in sets) // BATCH
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
    return experiment.parts.train(train_skills, sets, recipe, folder)


TABLES = (
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
        sources=(*KILT, "kilt-hotpot-train"),
        trains=True,
        gaps=(
            "Our columns measure retrieval alone, hop by hop, not the chain of the trained models.",
            "The paper's Top-10 exceeds its Top-20; the label is probably an error for Top-100.",
            LINKED,
        ),
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
        sources=(*KILT, "kilt-hotpot-train", "hyperlinks"),
        trains=True,
        gaps=(LINKED,),
    ),
)
