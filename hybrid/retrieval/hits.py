"""Pages of a fused ranking, groups by field value, and each channel's contribution to a hit."""

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
    """Raise if a page reaches beyond the fusion's candidates.

    Scores are normalized over the candidates, so a different number of candidates changes the ranking. The
    fusion therefore fixes the number of candidates for all pages: pages of one query come from one ranking.

    :raises InputError: `offset + k` exceeds the number of candidates.
    """
    if page.depth > fusion.candidates:
        raise InputError(
            f"ranks {page.offset + 1} to {page.depth} need more than the {fusion.candidates}"
            " candidates of each channel",
            remedy=remedy(
                "lower k or the offset, or fuse more candidates with {} (or {} in an adapter)",
                Option("candidates", page.depth),
                f"k={page.depth}",
            ),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FusedRanking(Ranking):
    """One page of the fused ranking of one query.

    A passage's docid comes from the first channel that ranks the passage: in an index of chunks, two channels
    may rank different chunks of one document. Scores are float64, the sums of the contributions in `places`.
    """

    fusion: Fusion = field(default_factory=Fusion)
    candidates: Candidates | None = None
    rankings: Mapping[str, Ranking] = field(default_factory=dict)

    def places(self) -> list[dict[str, ChannelPlace]]:
        """Return for each passage its rank, score and weighted contribution in each channel of the fusion."""
        assert self.candidates is not None
        column_of_id = dict(zip(self.candidates.ids, itertools.count(), strict=False))
        rows_by_channel = {
            name: dict(zip(ranking.passage_ids, itertools.count(), strict=False))
            for name, ranking in self.rankings.items()
        }
        places: list[dict[str, ChannelPlace]] = [{} for _ in self.passage_ids]
        for (name, weight), contributions in zip(
            self.fusion.weights.items(), self.candidates.added, strict=True
        ):
            scores = self.rankings[name].scores
            for passage_id, place in zip(self.passage_ids, places, strict=True):
                row = rows_by_channel[name].get(passage_id)
                rank, score = (None, None) if row is None else (row + 1, scores[row])
                place[name] = ChannelPlace(
                    rank, score, float(weight * contributions[column_of_id[passage_id]])
                )
        return places


def fused(
    fusion: Fusion, rankings: Mapping[str, Ranking], page: Page, keys: Keys | None = None
) -> FusedRanking:
    """Fuse the channels' rankings of one query and return one page of the fused ranking.

    :param keys: returns the collapse field's values for docids; None if hits are not collapsed
    """
    columns = {name: (rankings[name].passage_ids, rankings[name].scores) for name in fusion.weights}
    candidates = fusion.gather_columns(columns)
    fused_ranking = candidates.ranked(list(fusion.weights.values()), None if keys else page.depth)
    docid_by_id: dict[str, int] = {}
    for ranking in reversed(list(rankings.values())):
        docid_by_id.update(zip(ranking.passage_ids, ranking.docids, strict=True))
    docids = [docid_by_id[passage_id] for passage_id in fused_ranking.passage_ids]
    page_ranking = FusedRanking(
        fused_ranking.passage_ids, docids, fused_ranking.scores, fusion, candidates, rankings
    )
    if keys:
        page_ranking = page_ranking.at(first_places(keys(docids)))
    return page_ranking[page.offset : page.depth]
