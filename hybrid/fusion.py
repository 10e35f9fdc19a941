"""Several rankings become one: weighted sums of scores, or of reciprocal ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparta.base.errors import InputError
from sparta.base.records import ScoredPassage

Ranking = Sequence[ScoredPassage]
Run = Mapping[str, Ranking]
Scores = npt.NDArray[np.float64]
CANDIDATES = 100
RRF_K = 60


def centred(scores: Scores) -> Scores:
    """Ma et al. (2021): the middle of the range becomes 0, its ends ±0.5; equal scores become 0.5."""
    low, high = scores.min(), scores.max()
    if high == low:
        return np.full_like(scores, 0.5)
    return (scores - (low + high) / 2) / (high - low)


def standardized(scores: Scores) -> Scores:
    """Mean 0, standard deviation 1; equal scores become 1."""
    deviation = scores.std()
    return (scores - scores.mean()) / deviation if deviation > 0 else np.ones_like(scores)


def plain(scores: Scores) -> Scores:
    """Return them as they are."""
    return scores


NORMALIZATIONS: dict[str, Callable[[Scores], Scores]] = {
    "minmax": centred,
    "zscore": standardized,
    "none": plain,
}
LEAST_OF_EQUALS = {"minmax": -0.5, "zscore": -1.0}
"""What a passage counts that a channel lacks, where all that it has score the same."""
_SAID = {"minmax": "min-max centred (Ma et al., 2021)", "zscore": "standardized", "none": "as they are"}


@dataclass(frozen=True, slots=True)
class Fusion:
    """How rankings are fused.

    `weights` names the channels, the base first. With method `linear`, the score of a passage is the weighted
    sum of its scores in the channels, normalized for each question over the `candidates` best of the channel;
    a passage that a channel does not rank gets the least score there (TASER, eq. 7). Where all that a channel
    ranks score the same, or it ranks one only, these stand at the upper end and the others at the lower.
    With `rrf` it is the weighted sum of 1 / (rrf_k + rank), ranks from 1; a passage that a channel does not
    rank gets nothing there
    (Cormack et al., 2009).
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"sparta": 1.0, "bm25": 1.0})
    method: str = "linear"
    normalization: str = "minmax"
    candidates: int = CANDIDATES
    rrf_k: int = RRF_K

    def __post_init__(self) -> None:
        if len(self.weights) < 1 or not all(math.isfinite(w) for w in self.weights.values()):
            raise InputError(f"expected a finite weight for each channel, found {dict(self.weights)}")
        if self.method not in ("linear", "rrf"):
            raise InputError(f"expected the method linear or rrf, found {self.method!r}")
        if self.normalization not in NORMALIZATIONS:
            raise InputError(
                f"expected a normalization of {', '.join(NORMALIZATIONS)}, found {self.normalization!r}"
            )
        if self.candidates < 1 or self.rrf_k < 1:
            raise InputError("expected at least 1 candidate, and a constant of RRF of at least 1")

    @staticmethod
    def with_alpha(base: str, alpha: float, **options: object) -> Fusion:
        """`base + α · bm25`, the papers' form."""
        return Fusion({base: 1.0, "bm25": alpha}, **options)  # type: ignore[arg-type]

    def formula(self) -> str:
        """Say what is computed."""
        if self.method == "rrf":
            terms = [
                f"{'' if w == 1 else f'{w:g}·'}1/({self.rrf_k}+rank {name})"
                for name, w in self.weights.items()
            ]
            return f"score = {' + '.join(terms)}; each channel's {self.candidates} best"
        terms = [name if w == 1 else f"{w:g}·{name}" for name, w in self.weights.items()]
        return (
            f"score = {' + '.join(terms)}; scores {_SAID[self.normalization]} over each channel's"
            f" {self.candidates} best, a passage that a channel lacks counts as its least"
        )

    def fuse(self, rankings: Mapping[str, Ranking], k: int | None = None) -> list[ScoredPassage]:
        """Return one ranking of all candidates, or of the `k` best; `rankings` best first, by channel.

        A channel that found nothing adds nothing. Of equal scores, the one that stands first in the first
        channel comes first, then in the next; then the smaller id.
        """
        cut = {name: list(rankings.get(name, ()))[: self.candidates] for name in self.weights}
        places = {name: {p.passage_id: i for i, p in enumerate(ranking)} for name, ranking in cut.items()}
        ids = list(dict.fromkeys(p.passage_id for ranking in cut.values() for p in ranking))
        total = dict.fromkeys(ids, 0.0)
        for name, weight in self.weights.items():
            own = self._channel(cut[name])
            least = self._least(own)
            for passage_id in ids:
                total[passage_id] += weight * own.get(passage_id, least)
        last = len(ids)
        order = sorted(ids, key=lambda i: (-total[i], *(place.get(i, last) for place in places.values()), i))
        return [ScoredPassage(i, total[i]) for i in order[:k]]

    def _least(self, own: Mapping[str, float]) -> float:
        """Return what a channel adds for a passage that it lacks: less than equal scores, else the least."""
        if self.method == "rrf" or not own:
            return 0.0
        least, most = min(own.values()), max(own.values())
        return LEAST_OF_EQUALS.get(self.normalization, least) if least == most else least

    def _channel(self, ranking: Ranking) -> dict[str, float]:
        """Return what the channel adds for each of its passages, before the weight."""
        if not ranking:
            return {}
        ids = [p.passage_id for p in ranking]
        if self.method == "rrf":
            return {passage_id: 1 / (self.rrf_k + rank) for rank, passage_id in enumerate(ids, 1)}
        scores = NORMALIZATIONS[self.normalization](np.array([p.score for p in ranking], dtype=np.float64))
        return dict(zip(ids, scores.tolist(), strict=True))

    def fuse_runs(self, runs: Mapping[str, Run], k: int | None = None) -> dict[str, list[ScoredPassage]]:
        """Fuse whole runs, by channel; a question that one run lacks is fused from the others."""
        missing = [name for name in self.weights if name not in runs]
        if missing:
            raise InputError(f"expected a run for each channel, found none for {', '.join(missing)}")
        questions = dict.fromkeys(q for name in self.weights for q in runs[name])
        return {q: self.fuse({name: runs[name].get(q, ()) for name in self.weights}, k) for q in questions}
