"""What the steps of a chain do over an index: retrieve, expand, link, rerank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from hybrid.retrieval.fusion import CANDIDATES
from hybrid.retrieval.searcher import open_retriever
from sparta.base.closing import Closing
from sparta.base.errors import IndexStateError, InputError, NoPassageError
from sparta.base.filters import Filter
from sparta.base.records import Hit, Passage
from sparta.base.remedies import Command, Option, remedy
from sparta.index.folder import default_index, lasting_path
from sparta.index.reader import IndexReader
from sparta.lucene.packing import composed
from sparta.models.query_encoder import QueryTokenizer
from sparta.reader.records import no_texts, text_of
from sparta.search.retriever import Retriever
from sparta.search.searcher import BM25, Searcher

if TYPE_CHECKING:
    from dense.channel.searcher import DenseSearcher
    from dense.models.skills import Skills
    from sparta.reader.path_reader import PathReader, PathReading


_THREADS = 2
_BY_EXPERT = remedy(
    "index the entities with the model's expert: {}", Command.of("dense convert", reader="entity")
)


class IndexTools(Closing):
    """The steps of a chain over an index.

    :param index: an index folder; None is `$SPARTA_INDEX` or `./sparta-index`. To expand, its dense channel
        must be that of the model.
    :param model: a model with skills; chains that retrieve only need none
    :param entities: an index of descriptions, one an entity, whose dense channel was made by the model's
        expert for these (`dense convert --reader entity`); to link only
    :param path_reader: a reader of paths, for the step `read`; None is the one that ships for the language
    :param device: that of the reader of paths; None is the best there is
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
        self._deepest: dict[str, int] = {}

    def check(self, steps: Sequence[Step]) -> None:
        """Open what the steps need, and refuse steps that cannot be done."""
        self._deepest = _deepest(steps)
        for step in steps:
            skill = STEP_SKILLS[step.skill] if step.by_model else ""
            if step.by in (TITLES, LINKS):
                self._titles  # noqa: B018 (reads them)
            elif step.by == TERMS:
                self._words(step.channel)
            elif step.skill == READ:
                self._path_reader  # noqa: B018 (opens it)
            elif step.skill == RETRIEVE or step.by != MODEL:
                self._retriever(step.channel)
            if skill:
                for one in (skill, "span") if skill == "link" else (skill,):
                    self._skills.check(one)
            if skill and step.skill == EXPAND:
                self._check_model(self._dense)
            elif skill and step.skill == LINK:
                self._check_entities(self._entity_index)

    @property
    def num_docs(self) -> int:
        """Number of passages."""
        return self.words.num_docs

    @property
    def language(self) -> str:
        """The code of the language that the texts are in."""
        return self.words.language

    @property
    def tokenizer(self) -> QueryTokenizer:
        """The query side of the index."""
        return self.words.tokenizer

    @property
    def tells_sentences(self) -> bool:
        """Whether the reader of paths tells which sentences support the answer."""
        return self._path_reader.layout.sentences

    def passages(self, passage_ids: Sequence[str]) -> list[Hit]:
        """The passages of these ids that the index has, in their order."""
        words = self.words
        return words.hits_of([docid for docid in words.docids(passage_ids) if docid >= 0])

    @cached_property
    def _skills(self) -> Skills:
        if self.model is None:
            raise InputError(
                "expected a model with skills for the steps of this chain, found none",
                remedy=remedy(
                    "name one with {}, or keep the steps retrieve and rerank with weight = 0", Option("model")
                ),
            )
        from dense.models.skills import Skills

        return Skills.open(self.model)

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
                "expected an index of entities for the step link, found none",
                remedy=remedy(
                    "name one with {}, or leave the step out; docs/chains.md says how it is made",
                    Option("entities"),
                ),
            )
        from dense.channel.searcher import DenseSearcher

        return DenseSearcher(self.entities)

    def _retriever(self, channel: str) -> Retriever:
        if channel not in self._retrievers:
            self._retrievers[channel] = self._opened(channel)
        return self._retrievers[channel]

    def _opened(self, channel: str) -> Retriever:
        """Open a channel, or several that are fused, over the one reader of the index."""
        candidates = self._deepest.get(channel, CANDIDATES)
        return open_retriever(self._reader, channel or None, candidates=candidates)

    def _words(self, channel: str) -> Searcher:
        """A channel whose scores are sums over terms."""
        found = self._retriever(channel)
        if not isinstance(found, Searcher):
            raise InputError(
                f"expected impact or bm25 for a step by terms, found {channel!r}",
                remedy="name one of them as the channel of the step",
            )
        return found

    @property
    def words(self) -> Searcher:
        """The channel of BM25, whose analyzer says what the words of a text are."""
        return self._words(BM25)

    @cached_property
    def _titles(self) -> TitleTable:
        return TitleTable.of(self.words)

    def _check_model(self, searcher: DenseSearcher) -> None:
        from dense.models.resolve import identify

        own = identify(Path(self._skills.where))
        if own.sha256 != searcher.vectors.model.sha256:
            raise IndexStateError(
                f"expected a dense channel of the chain's model, found one of {searcher.model_name}",
                where=str(searcher.folder.path),
                remedy=remedy(
                    "build it again: {}", Command.of("dense index", overwrite=True, model=own.name)
                ),
            )

    def _check_entities(self, searcher: DenseSearcher) -> None:
        from dense.models.resolve import identify
        from dense.models.skill_config import NONE

        itself = identify(Path(self._skills.where)).sha256 == searcher.vectors.model.sha256
        if itself and self._skills.config.placement != NONE:
            raise IndexStateError(
                "expected descriptions that the expert for entities read, found what that for passages read",
                where=str(searcher.folder.path),
                remedy=_BY_EXPERT,
            )
        width: Any = self._skills.model.passage_encoder.config
        if searcher.vectors.width != width.hidden_size:
            raise IndexStateError(
                f"expected vectors of {width.hidden_size} numbers, as the model makes, found"
                f" {searcher.vectors.width}",
                where=str(searcher.folder.path),
                remedy=_BY_EXPERT,
            )

    # ------------------------------------------------------------------ what a chain calls

    def retrieve(self, step: Step, question: str) -> Sequence[Hit]:
        """The best passages for a question."""
        return self._retriever(step.channel).search(question, step.depth, filter=_filter(step))

    def expand(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[Sequence[Hit]]:
        """For each passage the best ones for the question with it."""
        if step.by != MODEL:
            own = [p.title if step.by == TITLE else f"{p.title} {p.text}" for p in passages]
            texts = [f"{question} {text}" for text in own]
            once = list(dict.fromkeys(texts))
            found = self._retriever(step.channel).batch_search(
                once, once, step.depth, _THREADS, filter=_filter(step)
            )
            return [found[text] for text in texts]
        vectors = self._skills.encode_expanded([question] * len(passages), [_passage(h) for h in passages])
        return list(self._dense.search_vectors(vectors, step.depth, filter=_filter(step)))

    def link(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """For each passage, or the question as one, the best descriptions of each entity in its text."""
        if step.by != MODEL:
            return self._link_titles(step, passages)
        texts = [hit.text for hit in passages]
        spans = self._skills.find_spans(texts)
        places = [(row, span) for row, own in enumerate(spans) for span in own]
        found: list[list[Linked]] = [[] for _ in texts]
        if not places:
            return found
        vectors = self._skills.encode_mentions(
            [texts[row] for row, _ in places], [(span.start, span.end) for _, span in places]
        )
        hits = list(self._entity_index.search_vectors(vectors, step.depth))
        self._check_linked([hit.passage_id for own in hits for hit in own])
        for (row, span), own in zip(places, hits, strict=True):
            found[row] += [Linked(hit, texts[row][span.start : span.end]) for hit in own]
        return found

    def _check_linked(self, passage_ids: Sequence[str]) -> None:
        """Refuse descriptions that the index does not hold as passages: nothing could go on from them."""
        once = list(dict.fromkeys(passage_ids))
        docids = zip(once, self.words.docids(once), strict=True)
        if absent := next((i for i, docid in docids if docid < 0 and not self._has_parts(i)), None):
            where = self._entity_index.folder.path
            raise IndexStateError(
                f"expected descriptions under the ids of the index's own passages, found {absent!r}",
                where=str(where),
                remedy=remedy(
                    "index those passages that describe an entity, as the index has them: {}",
                    Command.of("sparta index", corpus="FILE", overwrite=True, index=where),
                ),
            )

    def _has_parts(self, passage_id: str) -> bool:
        """Whether the index holds parts of a passage, which was cut."""
        try:
            self.words.first_part(passage_id)
        except NoPassageError:
            return False
        return True

    def _link_titles(self, step: Step, passages: Sequence[Hit]) -> Sequence[Sequence[Linked]]:
        """The passages that titles in the texts or in the metadata name, each with a score of 1."""
        if step.by == TITLES:
            texts = [composed(hit.text) for hit in passages]
            mentions = self._titles.mentions(texts)
            named = [
                [(text[one.start : one.end], one.docids) for one in own]
                for text, own in zip(texts, mentions, strict=True)
            ]
        else:
            named = [self._titles.named(hit.metadata.get("links")) for hit in passages]
        docids = list(dict.fromkeys(d for own in named for _, found in own for d in found[: step.depth]))
        hits = dict(zip(docids, self.words.hits_of(docids), strict=True))
        return [[Linked(hits[d], name) for name, found in own for d in found[: step.depth]] for own in named]

    def rerank(self, step: Step, question: str, passages: Sequence[Hit]) -> Sequence[float]:
        """How well each passage supports the question."""
        scores = self._skills.rerank([question] * len(passages), [_passage(h) for h in passages])
        return [float(score) for score in scores]

    def terms(self, step: Step, question: str, passages: Sequence[Hit]) -> npt.NDArray[np.float32]:
        """How well each passage covers each term of the question, `(n_passages, n_terms)`."""
        return self._words(step.channel).term_scores(question, [hit.passage_id for hit in passages])

    def in_context(self, hits: Sequence[Hit]) -> Sequence[Hit]:
        """Hits as a reader reads them: sentences with the text of their passage."""
        return self.words.in_context(hits)

    def read(self, question: str, paths: Sequence[Sequence[Hit]]) -> Sequence[PathReading]:
        """What a reader of paths makes of the passages of each path."""
        texts = [[text_of(hit) for hit in own] for own in paths]
        if not any(text.text or text.title for own in texts for text in own):
            raise no_texts()
        return self._path_reader.read(question, texts, language=self.language)

    def close(self) -> None:
        """Release the indexes."""
        for retriever in self._retrievers.values():
            retriever.close()  # also the reader that they share: closing it again does nothing
        self._reader.close()
        if "_entity_index" in vars(self):
            self._entity_index.close()

    def refresh(self) -> bool:
        """Search what was committed to the index since; returns whether there was anything."""
        is_new = self._reader.refresh()
        if is_new:
            vars(self).pop("_titles", None)
        return is_new

    def holding(self) -> AbstractContextManager[object]:
        """Keep to one snapshot of the index until the block ends."""
        return self._reader.holding()


def _deepest(steps: Sequence[Step]) -> dict[str, int]:
    """How many passages of each channel the steps want at most."""
    deepest: dict[str, int] = {}
    for step in steps:
        deepest[step.channel] = max(deepest.get(step.channel, CANDIDATES), step.depth)
    return deepest


def _filter(step: Step) -> Filter | None:
    return Filter.parse([step.filter]) if step.filter else None


def _passage(hit: Hit) -> Passage:
    return Passage(hit.passage_id, hit.text, hit.title)
