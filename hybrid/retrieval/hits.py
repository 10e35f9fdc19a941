"""A fused ranking: pages of it, the best of each group, what each channel gave."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from hybrid.retrieval.fusion import Candidates, Fusion
from sparta.base.errors import InputError
from sparta.base.records import ChannelPlace, Ranking
from sparta.base.remedies import Option, remedy
from sparta.search.ranked import Keys, first_places
from sparta.search.retriever import Page


def check_page(fusion: Fusion, page: Page) -> None:
    """Refuse ranks beyond the candidates, on the first page as on others.

    Scores are normalized over the candidates, so fusing more of them gives another ranking: how many there
    are is chosen with the fusion and no search changes it, or pages would not be of one ranking.

    :raises InputError: `offset + k` is more than the candidates.
    """
    if page.depth > fusion.candidates:
        raise InputError(
            f"expected a page within the {fusion.candidates} candidates of each channel, found ranks"
            f" {page.offset + 1} to {page.depth}",
            remedy=remedy(
                "ask for fewer, or fuse more for all pages alike: {}, or open the adapter with {}",
                Option("candidates", page.depth),
                f"k={page.depth}",
            ),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FusedRanking(Ranking):
    """A page of what some channels found for one query, fused.

    The docid of a passage is that of the first channel that ranks it: of a document in an index of chunks,
    each channel may have found another chunk. Scores are float64, sums of what `places` says.
    """

    fusion: Fusion = field(default_factory=Fusion)
    candidates: Candidates | None = None
    rankings: Mapping[str, Ranking] = field(default_factory=dict)

    def places(self) -> list[dict[str, ChannelPlace]]:
        """Return each passage's place in each channel of the fusion."""
        assert self.candidates is not None
        number = dict(zip(self.candidates.ids, itertools.count(), strict=False))
        rows = {
            name: dict(zip(ranking.passage_ids, itertools.count(), strict=False))
            for name, ranking in self.rankings.items()
        }
        places: list[dict[str, ChannelPlace]] = [{} for _ in self.passage_ids]
        for (name, weight), added in zip(self.fusion.weights.items(), self.candidates.added, strict=True):
            scores = self.rankings[name].scores
            for passage_id, place in zip(self.passage_ids, places, strict=True):
                row = rows[name].get(passage_id)
                rank, score = (None, None) if row is None else (row + 1, scores[row])
                place[name] = ChannelPlace(rank, score, float(weight * added[number[passage_id]]))
        return places


def fused(
    fusion: Fusion, rankings: Mapping[str, Ranking], page: Page, keys: Keys | None = None
) -> FusedRanking:
    """Fuse the rankings of the channels for one query, and return a page of the fused one.

    :param keys: the values of the field that passages are collapsed by
    """
    columns = {name: (rankings[name].passage_ids, rankings[name].scores) for name in fusion.weights}
    candidates = fusion.gather_columns(columns)
    best = candidates.ranked(list(fusion.weights.values()), None if keys else page.depth)
    docid_of: dict[str, int] = {}
    for ranking in reversed(list(rankings.values())):
        docid_of.update(zip(ranking.passage_ids, ranking.docids, strict=True))
    docids = [docid_of[passage_id] for passage_id in best.passage_ids]
    ranked = FusedRanking(best.passage_ids, docids, best.scores, fusion, candidates, rankings)
    if keys:
        ranked = ranked.at(first_places(keys(docids)))
    return ranked[page.offset : page.depth]
