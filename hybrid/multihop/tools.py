"""`IndexTools`: runs the steps of a chain over an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hybrid.multihop.chain import Linked
from hybrid.multihop.steps import (
    EXPAND,
    LINK,
    LINKS,
    MODEL,
    READ,
    RETRIEVE,
    STEP_SKILLS,
    TERMS,
    TITLE,
    TITLES,
    Step,
)
from hybrid.multihop.titles import TitleTable
from hybrid.retrieval.searcher import open_retriever
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, NoPassageError
from sparta.base.filters import Filter
from sparta.base.records import Hit, Passage
from sparta.base.remedies import Command, Option, remedy
from sparta.index.changes import how_to_rebuild
from sparta.index.folder import default_index, lasting_path
from sparta.index.reader import IndexReader
from sparta.index.snapshot import Committed, IndexSnapshot
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QueryTokenizer
from sparta.reader.records import focused_text, no_texts
from sparta.search.retriever import Retriever, hit_of
from sparta.search.searcher import BM25, Searcher

if TYPE_CHECKING:
    from dense.channel.searcher import DenseSearcher
    from dense.encoding.skills import Skills
    from sparta.reader.path_reader import PathReader, PathReading


_THREADS = 2
_EXAMPLES = 8
"""The number of descriptions whose vectors show which model encoded them."""
_SAME = 0.95
"""The least cosine of two vectors of a text by one model; number formats change vectors a little."""


class IndexTools(Closing):
    """Runs the steps of a chain over an index.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`. For `expand` by the model, the
        index's dense channel must come from the same model
    :param model: a model with skills; chains that only retrieve need no model
    :param entities: an index with one description per entity, for `link` by the model. The model's expert for
        entities must have encoded this index's dense channel (`dense convert --reader entity`)
    :param path_reader: a path reader, for the step `read`; None is the default path reader of the language
    :param device: the device of the path reader; None is the best available device
    """

    def __init__(
        self,
        index: str | Path | None = None,
        model: str | Path | None = None,
        entities: str | Path | None = None,
        path_reader: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        self.index = lasting_path(default_index() if index is None else index)
        self.model, self.entities, self.path_reader = (
            path if path is None else lasting_path(path) if Path(path).exists() else path
            for path in (model, entities, path_reader)
        )
        self.device = device
        self._reader = IndexReader(self.index)
        self._retrievers: dict[str, Retriever] = {}
        self._depths: dict[str, int] = {}
        self._read_titles: tuple[Committed | None, TitleTable | None] = (None, None)

    def check(self, steps: Sequence[Step]) -> None:
        """Open the channels, models and readers that the steps need; raise if a step cannot run."""
        self._depths = _depths_by_channel(steps)
        for step in steps:
            skill = STEP_SKILLS[step.skill] if step.by_model else ""
            if step.by in (TITLES, LINKS):
                self._titles()
            elif step.by == TERMS:
                self._words(step.channel)
            elif step.skill == READ:
                self._path_reader  # noqa: B018 (opens the reader)
            elif step.skill == RETRIEVE or step.by != MODEL:
                self._retriever(step.channel)
            if skill:
                for skill_name in (skill, "span") if skill == "link" else (skill,):
                    self._skills.check(skill_name)
            if skill and step.skill == EXPAND:
                self._check_model(self._dense)
            elif skill and step.skill == LINK:
                check_entities(self._skills, self._entity_index)

    @property
    def num_docs(self) -> int:
        """The number of passages in the index."""
        return self.words.num_docs

    @property
    def language(self) -> str:
        """The language code of the passages."""
        return self.words.language

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query tokenizer of the index."""
        return self.words.tokenizer

    @property
    def tells_sentences(self) -> bool:
        """Whether the path reader marks the sentences that support an answer."""
        return self._path_reader.layout.sentences

    def passages(self, passage_ids: Sequence[str]) -> list[Hit]:
        """Return the passages with these ids that the index has, in the order of the ids."""
        words = self.words
        return words.hits_of([docid for docid in words.docids(passage_ids) if docid >= 0])

    @cached_property
    def _skills(self) -> Skills:
        if self.model is None:
            raise InputError(
                "the steps of this chain need a model with skills, but no model is set",
                remedy=remedy(
                    "set {}, or use only the steps retrieve and rerank with weight = 0", Option("model")
                ),
            )
        from dense.encoding.skills import Skills

        return Skills.open(self.model, device=self.device)

    @cached_property
    def _path_reader(self) -> PathReader:
        from sparta.reader.config import path_reader_folder
        from sparta.reader.path_reader import PathReader

        return PathReader.open(path_reader_folder(self.path_reader, self.language), device=self.device)

    @cached_property
    def _dense(self) -> DenseSearcher:
        from dense.channel.searcher import DenseSearcher

        return DenseSearcher(self._reader)

    @cached_property
    def _entity_index(self) -> DenseSearcher:
        if self.entities is None:
            raise InputError(
                "the step link needs an index of entities, but no such index is set",
                remedy=remedy(
                    "set {}, or remove the step; docs/chains.md shows how to build an index of entities",
                    Option("entities"),
                ),
            )
        from dense.channel.searcher import DenseSearcher

        return DenseSearcher(self.entities)

    def _retriever(self, channel: str) -> Retriever:
        """Return the retriever of a channel, opened at its first use."""
        if channel not in self._retrievers:
            self._retrievers[channel] = self._open_channel(channel)
        return self._retrievers[channel]

    def _open_channel(self, channel: str) -> Retriever:
        """Open a channel, or a fusion of several channels, over the shared reader of the index."""
        return open_retriever(self._reader, channel or None, n_hits=self._depths.get(channel, 0))

    def _words(self, channel: str) -> Searcher:
        """Return the retriever of a channel whose scores are sums over terms (impact or bm25)."""
        retriever = self._retriever(channel)
        if not isinstance(retriever, Searcher):
            raise InputError(
                f"a step by terms needs the channel impact or bm25, found {channel!r}",
                remedy='set channel = "impact" or channel = "bm25" in the step',
            )
        return retriever

    @property
    def words(self) -> Searcher:
        """The BM25 channel, whose analyzer splits texts into words."""
        return self._words(BM25)

    def _titles(self) -> TitleTable:
        """Return the titles of the pinned snapshot. The last table is cached."""
        with self.holding() as snapshot:
            committed, titles = self._read_titles
            if titles is None or committed != snapshot.committed:
                titles = TitleTable.of(self.words)
                self._read_titles = snapshot.committed, titles
            return titles

    def _check_model(self, searcher: DenseSearcher) -> None:
        """Raise if the dense channel comes from another model than the chain's model."""
        from dense.models.resolve import identify

        model = identify(Path(self._skills.where))
        if model.sha256 != searcher.vectors.model.sha256:
            raise IndexStateError(
                f"the dense channel is not of the chain's model, but of {searcher.model_name}",
                where=str(searcher.folder.path),
                remedy=remedy(
                    "build the dense channel again: {}",
                    Command.of("dense index", overwrite=True, model=model.name, index=searcher.folder.path),
                ),
            )

    # ------------------------------------------------------------------ the operations of ChainTools

    def retrieve(self, step: Step, question: str) -> Sequence[Hit]:
        """Return the best passages for a question."""
        return self._retriever(step.channel).search(question, step.depth, filter=_filter(step))

    def expand(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[Sequence[Hit]]:
        """Return, for each passage, the best passages for the question combined with the passage."""
        if step.by != MODEL:
            additions = [
                passage.title if step.by == TITLE else f"{passage.title} {passage.text}"
                for passage in passages
            ]
            queries = [f"{question} {text}" for text in additions]
            distinct_queries = list(dict.fromkeys(queries))
            hits_by_query = self._retriever(step.channel).batch_search(
                distinct_queries, distinct_queries, step.depth, _THREADS, filter=_filter(step)
            )
            return [hits_by_query[query] for query in queries]
        vectors = self._skills.encode_expanded(
            [question] * len(passages), [_passage(hit) for hit in passages]
        )
        return list(self._dense.search_vectors(vectors, step.depth, filter=_filter(step)))

    def link(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """Return, for each passage (or the question as the only passage), the passages about its entities.

        The index of entities only finds the passages; their texts come from the chain's index.
        """
        if step.by != MODEL:
            return self._link_titles(step, passages)
        texts = [hit.text for hit in passages]
        spans = self._skills.find_spans(texts)
        row_spans = [(row, span) for row, text_spans in enumerate(spans) for span in text_spans]
        linked: list[list[Linked]] = [[] for _ in texts]
        if not row_spans:
            return linked
        vectors = self._skills.encode_mentions(
            [texts[row] for row, _ in row_spans], [(span.start, span.end) for _, span in row_spans]
        )
        hits = list(self._entity_index.search_vectors(vectors, step.depth))
        passages_by_id = self._described(hit.passage_id for mention_hits in hits for hit in mention_hits)
        for (row, span), mention_hits in zip(row_spans, hits, strict=True):
            name = texts[row][span.start : span.end]
            linked[row] += [
                Linked(replace(passages_by_id[hit.passage_id], score=hit.score), name) for hit in mention_hits
            ]
        return linked

    def _described(self, passage_ids: Iterable[str]) -> dict[str, Hit]:
        """Return the passages of the chain's index that descriptions of entities name, by id.

        :raises IndexStateError: the index lacks a passage, so the chain could not continue.
        """
        words, distinct_ids = self.words, list(dict.fromkeys(passage_ids))
        docids = zip(distinct_ids, words.docids(distinct_ids), strict=True)
        docid_by_id = {passage_id: docid for passage_id, docid in docids if docid >= 0}
        hits = dict(zip(docid_by_id, words.hits_of(list(docid_by_id.values())), strict=True))
        for passage_id in [passage_id for passage_id in distinct_ids if passage_id not in hits]:
            try:
                hits[passage_id] = hit_of(passage_id, 1.0, words.passage(passage_id))
            except NoPassageError:
                folder = self._entity_index.folder.path
                raise IndexStateError(
                    f"the index of entities has the id {passage_id!r}, which the chain's index lacks",
                    where=str(folder),
                    remedy=remedy(
                        "rebuild the index of entities from the index's passages, with the same ids: {}",
                        how_to_rebuild(folder),
                    ),
                ) from None
        return hits

    def _link_titles(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """Return the passages whose titles the texts or the metadata name, each with score 1."""
        titles = self._titles()
        if step.by == TITLES:
            texts = [composed(hit.text) for hit in passages]
            mentions = titles.mentions(texts)
            names = [
                [(text[mention.start : mention.end], mention.docids) for mention in text_mentions]
                for text, text_mentions in zip(texts, mentions, strict=True)
            ]
        else:
            names = [titles.named(hit.metadata.get("links")) for hit in passages]
        docids = dict.fromkeys(
            docid
            for passage_names in names
            for _, title_docids in passage_names
            for docid in title_docids[: step.depth]
        )
        hits = dict(zip(docids, self.words.hits_of(list(docids)), strict=True))
        return [
            [
                Linked(hits[docid], name)
                for name, title_docids in passage_names
                for docid in title_docids[: step.depth]
            ]
            for passage_names in names
        ]

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """Return a score for each passage: how well the passage supports the question."""
        scores = self._skills.rerank([question] * len(passages), [_passage(hit) for hit in passages])
        return [float(score) for score in scores]

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        """Return how well each passage covers each term of the question, `(n_passages, n_terms)`."""
        return self._words(step.channel).term_scores(question, [hit.passage_id for hit in passages])

    def in_context(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Return the hits with the text that a reader reads: sentences with their passage's text."""
        return self.words.in_context(hits)

    def read(self, question: str, paths: Sequence[Sequence[Hit]]) -> Sequence[PathReading]:
        """Return the reader's result for each path: scores, an answer and supporting sentences."""
        texts = [[focused_text(hit) for hit in path] for path in paths]
        if not any(text.text or text.title for path in texts for text in path):
            raise no_texts()
        return self._path_reader.read(question, texts, language=self.language)

    def close(self) -> None:
        """Release the indexes."""
        for retriever in self._retrievers.values():
            retriever.close()  # also closes the shared index reader; a second close does nothing
        self._reader.close()
        if "_entity_index" in vars(self):
            self._entity_index.close()

    def refresh(self) -> bool:
        """Open the newest commits of the index and of the index of entities. Returns whether one changed."""
        changed = self._reader.refresh()
        if "_entity_index" in vars(self):
            changed |= self._entity_index.refresh()
        return changed

    def holding(self) -> AbstractContextManager[IndexSnapshot]:
        """Pin the current snapshot of the index for the block."""
        return self._reader.holding()


def check_entities(skills: Skills, searcher: DenseSearcher) -> None:
    """Raise unless the model's expert for entities encoded the dense channel of an entity index.

    :raises IndexStateError: another expert or another model encoded the vectors.
    """
    from dense.models.resolve import identify
    from dense.models.skill_config import NONE

    is_same_model = identify(Path(skills.where)).sha256 == searcher.vectors.model.sha256
    if is_same_model and skills.config.placement == NONE:
        return
    if is_same_model:
        problem = "the index of entities was encoded by the expert for passages, not for entities"
    elif searcher.vectors.width != skills.model.width:
        problem = (
            f"the vectors of entities have the width {searcher.vectors.width}, the model has the width"
            f" {skills.model.width}"
        )
    elif not _is_encoded_by_expert(skills, searcher):
        problem = f"the index of entities was encoded by another model than {skills.where}"
    else:
        return
    index, converted = searcher.folder.path, "ENTITY-MODEL"
    raise IndexStateError(
        problem,
        where=str(index),
        remedy=remedy(
            "encode the index with the model's expert for entities: {}; {}",
            Command.of("dense convert", **{"from": skills.where}, reader="entity", output=converted),
            Command.of("dense index", overwrite=True, model=converted, index=index),
        ),
    )


def _is_encoded_by_expert(skills: Skills, searcher: DenseSearcher) -> bool:
    """Return whether the vectors of an entity index are those of the model's expert for entities."""
    with searcher.opened() as channel:
        context = skills.model.config.layout.use_context
        passages, stored = channel.examples(_EXAMPLES, context=context)
    if not passages:
        return True
    vectors = skills.encode_entities(passages)
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(stored, axis=1)
    cosines = np.einsum("nw,nw->n", vectors, stored) / np.maximum(norms, np.finfo(np.float32).tiny)
    return float(np.median(cosines)) >= _SAME


def _depths_by_channel(steps: Sequence[Step]) -> dict[str, int]:
    """Return the largest depth of the steps that search each channel."""
    deepest: dict[str, int] = {}
    for step in steps:
        deepest[step.channel] = max(deepest.get(step.channel, 0), step.depth)
    return deepest


def _filter(step: Step) -> Filter | None:
    return Filter.parse([step.filter]) if step.filter else None


def _passage(hit: Hit) -> Passage:
    return Passage(hit.passage_id, hit.text, hit.title)
