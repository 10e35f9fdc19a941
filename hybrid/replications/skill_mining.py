"""Mines hard negatives for expanded queries and hyperlinks from an index (Chain-of-Skills, Appendix B.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dense.channel.searcher import DenseSearcher
from dense.models.mentions import with_marks
from dense.models.resolve import identify
from dense.models.skill_config import LINK
from dense.training.mining import (
    QUESTIONS_AT_ONCE,
    Miner,
    MiningOptions,
    MiningReport,
    Question,
)
from dense.training.skill_data import SkillFile, read_skill_sets
from dense.training.skill_examples import SkillExample
from hybrid.multihop.tools import check_entities
from sparta.base.errors import IndexStateError, InputError
from sparta.base.records import Hit, Passage
from sparta.base.remedies import Command, Option, remedy
from sparta.search.searcher import BM25
from sparta.training.formats import dpr_object
from sparta.training.known import Key, keys_of

if TYPE_CHECKING:
    from dense.encoding.skills import Skills


def mine_skill(
    index: Path | None,
    files: Sequence[Path],
    skill: str,
    output: Path,
    options: MiningOptions,
    *,
    texts: Sequence[Path] = (),
    model: str | None = None,
) -> MiningReport:
    """Write DPR training JSON for `dense train-skills --expanded` or `--link`.

    BM25 and impacts search an expanded query as the question followed by title and text of its evidence, and
    a link as its mention. In the dense channel, the skills of `model` encode expanded queries and links. A
    negative is never a positive or the evidence of the question, a passage titled like a link's entity, or a
    passage with an answer.

    :param files: files for `read_skill_sets`; they name passages of `texts`, or without `texts`, passages of
        the index
    :raises InputError: the channel dense has no model, a file has no examples of the skill, the output's
        name does not end like DPR's JSON, or the index is of sentences or chunks
    """
    with Miner.writing(index, output, options) as miner:
        miner.check_whole()
        index_passages = miner.lexical.live_passages if not texts else None
        sets = read_skill_sets([SkillFile(skill, path) for path in files], texts, named=index_passages)
        search = _search(miner.searcher, skill, model)
        for skill_set in sets:
            positive_keys = _right_of(skill_set.examples)
            for block in batched(skill_set.examples, QUESTIONS_AT_ONCE):
                for example, hits in zip(block, search(block, options.depth, options.threads), strict=True):
                    question = Question(
                        _query(example, skill),
                        example.answers,
                        (),
                        positive_keys[example.mention_key],
                        (),
                        example.negatives,
                    )
                    if skill == LINK:
                        titles = {passage.title for passage in example.positives}
                        hits = [hit for hit in hits if hit.title not in titles]
                    evidence = {"evidence": dpr_object(example.evidence)} if example.evidence else {}
                    miner.write(question, example.positives, hits, evidence)
                options.advance(len(block))
    return miner.report


def _search(
    searcher: Any, skill: str, model: str | None
) -> Callable[[Sequence[SkillExample], int, int], list[list[Hit]]]:
    """Return a function that takes examples, a depth and a number of threads, and returns hits by example."""
    if isinstance(searcher, DenseSearcher):
        skills = _skills_for(searcher, skill, model)

        def by_vectors(examples: Sequence[SkillExample], depth: int, threads: int) -> list[list[Hit]]:
            texts = [example.query for example in examples]
            if skill == LINK:
                vectors = skills.encode_mentions(texts, [example.spans[0] for example in examples])
            else:
                vectors = skills.encode_expanded(texts, [e.evidence or Passage("", "") for e in examples])
            return list(searcher.search_vectors(vectors, depth, threads))

        return by_vectors

    def by_terms(examples: Sequence[SkillExample], depth: int, threads: int) -> list[list[Hit]]:
        texts = dict.fromkeys(_terms(example) for example in examples)
        hits = searcher.batch_search([*texts], [*texts], depth, threads)
        return [hits[_terms(example)] for example in examples]

    return by_terms


def _skills_for(searcher: DenseSearcher, skill: str, model: str | None) -> Skills:
    """Return the skills of a model; raise if the dense channel lacks its passage (or entity) vectors."""
    if model is None:
        raise InputError(
            f"the channel dense needs a model with the skill {skill}, but no model is named",
            remedy=remedy("name a model with {}, or mine with {}", Option("model"), Option("channel", BM25)),
        )
    from dense.encoding.skills import Skills

    skills = Skills.open(model)
    skills.check(skill)
    if skill == LINK:
        check_entities(skills, searcher)
    elif identify(Path(skills.where)).sha256 != searcher.vectors.model.sha256:
        raise IndexStateError(
            "the vectors of the dense channel are not from the model's expert for passages",
            where=str(searcher.folder.path),
            remedy=remedy(
                "rebuild the dense channel: {}",
                Command.of("dense index", overwrite=True, model=model, index=searcher.folder.path),
            ),
        )
    return skills


def _terms(example: SkillExample) -> str:
    """Return the text that BM25 and impacts search: a link's mention, or the question with its evidence."""
    if example.evidence is None:
        return example.query[slice(*example.spans[0])]
    return f"{example.query} {example.evidence.title} {example.evidence.text}"


def _query(example: SkillExample, skill: str) -> str:
    """Return the query for the training file, with marks around a link's mention."""
    return with_marks(example.query, example.spans[0]) if skill == LINK else example.query


def _right_of(examples: Sequence[SkillExample]) -> dict[tuple[str, object], frozenset[Key]]:
    """Return, for each query, the keys of all positives and evidence that its examples name."""
    keys_by_query: dict[tuple[str, object], set[Key]] = {}
    for example in examples:
        passages = [*example.positives, *filter(None, [example.evidence])]
        passage_keys = (key for passage in passages for key in keys_of(passage))
        keys_by_query.setdefault(example.mention_key, set()).update(passage_keys)
    return {name: frozenset(passage_keys) for name, passage_keys in keys_by_query.items()}
