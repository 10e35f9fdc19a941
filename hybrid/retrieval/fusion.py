"""Fuses the rankings of several channels by weighted sums of scores or of reciprocal ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sparta.base.checks import check_passages, is_number, limit, whole
from sparta.base.errors import InputError
from sparta.base.records import Ranking, Run, ScoredPassage
from sparta.base.remedies import Option, remedy
from sparta.base.renames import renamed_attributes

Columns = tuple[Sequence[str], Sequence[float]]
"""Passage ids and scores of a ranking, best first."""
Scores = npt.NDArray[np.float64]
CANDIDATES = 100
_HIGHEST_WEIGHT = 1e6
RRF_K = 60


def centered(scores: Scores) -> Scores:
    """Scale scores so that the middle of their range is 0 and its ends are ±0.5 (Ma et al., 2021).

    Equal scores become 0.5.
    """
    low, high = scores.min(), scores.max()
    if high == low:
        return np.full_like(scores, 0.5)
    return (scores - (low + high) / 2) / (high - low)


def standardized(scores: Scores) -> Scores:
    """Scale scores to mean 0 and standard deviation 1; equal scores become 1."""
    if scores.min() == scores.max():  # rounding may give equal scores a deviation above 0
        return np.ones_like(scores)
    return (scores - scores.mean()) / scores.std()


def plain(scores: Scores) -> Scores:
    """Return the scores unchanged."""
    return scores


NORMALIZATIONS: dict[str, Callable[[Scores], Scores]] = {
    "minmax": centered,
    "zscore": standardized,
    "none": plain,
}
_BELOW_EQUAL_SCORES = {"minmax": -0.5, "zscore": -1.0}
"""The normalized score of a passage without a rank in a channel whose ranked passages all score the same."""
_NORMALIZATION_LABELS = {
    "minmax": "min-max normalized and centered (Ma et al., 2021)",
    "zscore": "standardized",
    "none": "not normalized",
}


@renamed_attributes(sum="weighted_sum_text")
@dataclass(frozen=True, slots=True)
class Fusion:
    """The settings of a fusion: weights of channels, method, normalization and number of candidates.

    `weights` maps channel names to weights; the base channel comes first. With method `linear`, a passage's
    score is the weighted sum of its channel scores (TASER, eq. 7). Each channel's scores are normalized per
    query over the channel's `candidates` best passages, by default as in Ma et al. (2021). A passage that a
    channel does not rank gets the channel's lowest score. If all candidates of a channel score the same, or
    the channel has only one candidate, these candidates get the highest normalized score and all other
    passages the lowest. Without normalization, all get the same score, so such a channel changes no ranking.

    With method `rrf`, a passage's score is the weighted sum of 1 / (rrf_k + rank), with ranks from 1. A
    channel adds 0 for a passage that the channel does not rank (Cormack et al., 2009).
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"impact": 1.0, "bm25": 1.0}, hash=False)
    method: str = "linear"
    normalization: str = "minmax"
    candidates: int = CANDIDATES
    rrf_k: int = RRF_K

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise InputError(
                f"weights must map channels to numbers, found {self.weights!r}",
                remedy='name each channel with its weight: {"impact": 1.0, "bm25": 1.2}',
            )
        if not all(is_number(weight) and abs(weight) <= _HIGHEST_WEIGHT for weight in self.weights.values()):
            raise InputError(
                f"weights must be numbers within ±{_HIGHEST_WEIGHT:g}, found {dict(self.weights)}",
                remedy="use weights near 1: only the ratios of the weights matter",
            )
        object.__setattr__(self, "weights", dict(self.weights))  # the caller may change the original
        if self.method not in ("linear", "rrf"):
            raise InputError(f"unknown fusion method {self.method!r}; known methods: linear, rrf")
        if self.normalization not in NORMALIZATIONS:
            raise InputError(
                f"unknown normalization {self.normalization!r}; known: {', '.join(NORMALIZATIONS)}"
            )
        whole("candidates", self.candidates)
        whole("rrf_k", self.rrf_k)

    @classmethod
    def parse(cls, text: str, known: Sequence[str], candidates: int = CANDIDATES) -> Fusion:
        """Return the fusion of channels with weights, such as `bm25=1.2,impact`, with default settings.

        :param known: the accepted channel names
        :raises InputError: as `parse_weights`
        """
        return cls(parse_weights(text, known, CHANNEL_OPTION), candidates=candidates)

    @property
    def label(self) -> str:
        """A short name: `impact + 1.2·bm25`, `sparta + 1.2·bm25 (zscore)`, `RRF impact + bm25`."""
        if self.method == "rrf":
            return f"RRF {self.weighted_sum_text()}"
        is_unusual = self.normalization != "minmax" and len(self.weights) > 1
        return (
            f"{self.weighted_sum_text()} ({self.normalization})" if is_unusual else self.weighted_sum_text()
        )

    @property
    def full_label(self) -> str:
        """The label with the constants that `label` omits: `RRF impact + bm25 (k 60, 100 candidates)`."""
        constant = f"k {self.rrf_k}, " if self.method == "rrf" else ""
        return f"{self.label} ({constant}{self.candidates} candidates)"

    def weighted_sum_text(self, term: str = "{}") -> str:
        """Return the weighted sum as text: `impact + 1.2·bm25`; `term` is the format of a channel name."""
        summands = ((term.format(name), weight) for name, weight in self.weights.items())
        return " + ".join(text if weight == 1 else f"{weight:g}·{text}" for text, weight in summands)

    def fuse(self, rankings: Mapping[str, Sequence[ScoredPassage]], k: int | None = None) -> Ranking:
        """Return one fused ranking of all candidates, or of the `k` best.

        A channel without passages adds nothing. Passages with equal scores keep their order in the first
        channel's ranking, then in the second channel's, then in the later channels' rankings.

        :param rankings: passages by channel, best first
        :raises InputError: a ranking has the same passage twice.
        """
        for name in self.weights:
            check_passages(rankings.get(name, ()), name)
        return self.gather(rankings).ranked(list(self.weights.values()), limit("k", k))

    def gather(self, rankings: Mapping[str, Sequence[ScoredPassage]]) -> Candidates:
        """Return the candidates of one query, with each channel's unweighted contribution to their scores."""
        return self.gather_columns(
            {
                name: ([passage.passage_id for passage in ranking], [passage.score for passage in ranking])
                for name, ranking in rankings.items()
            }
        )

    def gather_columns(self, columns: Mapping[str, Columns]) -> Candidates:
        """Return the candidates of one query, from each channel's columns of passage ids and scores."""
        candidates: list[Columns] = []
        for name in self.weights:
            passage_ids, scores = columns.get(name, ((), ()))
            candidates.append((passage_ids[: self.candidates], scores[: self.candidates]))
        ids = list(dict.fromkeys(itertools.chain.from_iterable(passage_ids for passage_ids, _ in candidates)))
        position_of_id = dict(zip(ids, range(len(ids)), strict=True))
        contributions_by_channel = np.zeros((len(candidates), len(ids)))
        for contributions, (passage_ids, scores) in zip(contributions_by_channel, candidates, strict=True):
            if passage_ids:
                ranked_contributions = self._contributions(scores)
                contributions[:] = self._contribution_below(ranked_contributions)
                contributions[[position_of_id[passage_id] for passage_id in passage_ids]] = (
                    ranked_contributions
                )
        return Candidates(ids, contributions_by_channel)

    def _contribution_below(self, contributions: Scores) -> float:
        """Return the contribution of a channel to passages that the channel does not rank.

        `contributions` are the channel's contributions to its ranked passages. Passages without a rank get
        the lowest contribution of a ranked passage, or less if all ranked passages have the same
        contribution.
        """
        if self.method == "rrf":
            return 0.0
        lowest = float(contributions.min())
        return (
            _BELOW_EQUAL_SCORES.get(self.normalization, lowest) if lowest == contributions.max() else lowest
        )

    def _contributions(self, scores: Sequence[float]) -> Scores:
        """Return a channel's unweighted contributions to its passages' scores; `scores` is best first."""
        if self.method == "rrf":
            return 1 / (self.rrf_k + np.arange(1, len(scores) + 1))
        return NORMALIZATIONS[self.normalization](np.array(scores, dtype=np.float64))

    def fuse_runs(self, runs: Mapping[str, Run], k: int | None = None) -> dict[str, Ranking]:
        """Fuse runs by channel into one run; a query that a run lacks is fused from the other runs."""
        weights, depth = list(self.weights.values()), limit("k", k)
        return {
            query_id: candidates.ranked(weights, depth)
            for query_id, candidates in self.gather_runs(runs).items()
        }

    def gather_runs(self, runs: Mapping[str, Run]) -> dict[str, Candidates]:
        """Return each query's candidates, by query id; `Candidates.ranked` takes any weights.

        :raises InputError: there is no run of a channel, or a ranking has the same passage twice.
        """
        missing = [name for name in self.weights if name not in runs]
        if missing:
            raise InputError(f"the fusion lacks a run of {', '.join(missing)}")
        for name in self.weights:
            for query_id, ranking in runs[name].items():
                check_passages(ranking, f"{name}, query {query_id}")
        query_ids = dict.fromkeys(query_id for name in self.weights for query_id in runs[name])
        return {
            query_id: self.gather({name: runs[name].get(query_id, ()) for name in self.weights})
            for query_id in query_ids
        }


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one query: passages that at least one channel ranks.

    `ids` are passage ids in the order that breaks ties: first the first channel's ranking, then the
    additional passages of the second channel, then the additional passages of the later channels. `added`
    holds each channel's unweighted contribution to each passage's score, `(channels, n) float64`.
    """

    ids: Sequence[str]
    added: Scores

    def ranked(self, weights: Sequence[float], k: int | None = None) -> Ranking:
        """Return the `k` best passages by weighted sum, without docids.

        Equal contributions give equal sums, in whatever channels they are: they are added by size.
        """
        weighted = np.array(weights)[:, np.newaxis] * self.added
        if len(weighted) == 3:  # the sum of two numbers is the same in both orders
            first, second, third = weighted
            low, high = np.minimum(first, second), np.maximum(first, second)
            middle = np.maximum(low, np.minimum(high, third))
            weighted = np.array([np.minimum(low, third), middle, np.maximum(high, third)])
        scores = np.zeros(len(self.ids))
        for contributions in weighted:
            scores += contributions
        order = np.argsort(-scores, kind="stable")[:k]
        return Ranking([self.ids[i] for i in order], (), scores[order].tolist())


def named(fusions: Sequence[Fusion]) -> dict[str, Fusion]:
    """Return the fusions by label; fusions with the same short label get their full labels.

    :raises InputError: two different fusions have the same full label.
    """
    by_label: dict[str, Fusion] = {}
    for fusion in fusions:
        is_ambiguous = any(second.label == fusion.label and second != fusion for second in fusions)
        label = fusion.full_label if is_ambiguous else fusion.label
        if by_label.setdefault(label, fusion) != fusion:
            raise InputError(
                f"two different fusions have the label {label}",
                remedy="remove one of the two fusions, or compare the two in separate calls",
            )
    return by_label


def formula(*fusions: Fusion) -> str:
    """Describe in one line how the scores are computed; the fusions may differ only in their weights."""
    first = fusions[0]
    uses_ranks = first.method == "rrf"
    term = f"1/({first.rrf_k}+rank {{}})" if uses_ranks else "{}"
    score = f"score = {', or '.join(fusion.weighted_sum_text(term) for fusion in fusions)}"
    candidates = f"each channel's {first.candidates} best passages"
    if uses_ranks:
        return f"{score}; {candidates}"
    normalized = f"scores {_NORMALIZATION_LABELS[first.normalization]} over {candidates}"
    return f"{score}; {normalized}; a passage missing in a channel gets the channel's lowest score"


def default_weights(channels: Collection[str]) -> dict[str, float]:
    """Return the weights of the fusion that scored best on held-out sets (docs/benchmarks.md).

    The section "Channels and hybrids" of docs/benchmarks.md has the results. The default fuses the dense and
    impact channels if the index has both. BM25 is left out: adding BM25 to impacts gives no significant gain,
    because impacts already match the query's words.
    """
    names = [name for name in ("dense", "impact") if name in channels]
    return dict.fromkeys(names or ["bm25"], 1.0)


def all_fusion_weights(channels: Collection[str], alpha: float) -> list[dict[str, float]]:
    """Return the weights of all fusions of two or three channels: `alpha` for BM25, 1 for the other channels.

    Channels are ordered dense, impact, BM25; the first is the base channel of the sum (TASER, eq. 7).
    """
    weights = {"dense": 1.0, "impact": 1.0, "bm25": alpha}
    combinations = (("dense", "bm25"), ("impact", "bm25"), ("dense", "impact"), ("dense", "impact", "bm25"))
    return [{name: weights[name] for name in names} for names in combinations if set(names) <= set(channels)]


WEIGHTS_OPTION = Option("weights")
CHANNEL_OPTION = Option("channels", flag="channel")


def parse_weights(
    text: str, known: Sequence[str], option: Option | None = WEIGHTS_OPTION
) -> dict[str, float]:
    """Parse weights such as `bm25=1.2,impact`; return weights by channel, in input order.

    A channel without a number has weight 1.

    :param known: the accepted channel names
    :param option: the option, for the remedy; None if the text comes from no option
    :raises InputError: the text names no channel, an unknown channel or a channel twice, or a weight is not a
        finite number.
    """
    weights: dict[str, float] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        pair = item if "=" in item else f"{item}=1"
        name, _, number = (side.strip() for side in pair.rpartition("="))
        if name == "sparta" and name not in known and "impact" in known:
            name = "impact"  # the channel's former name was sparta
        if name not in known:
            raise _weights_error(option, known, repr(name or number))
        if name in weights:
            raise _weights_error(option, known, f"{name} twice")
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = math.nan
        if not math.isfinite(weights[name]):
            raise _weights_error(option, known, f"{number!r} as the weight of {name}")
    if not weights:
        raise _weights_error(option, known, "none")
    return weights


def weights_name(weights: Mapping[str, float]) -> str:
    """Return the text of weights by channel, which does not depend on their order: `bm25=0.5,impact`."""
    return ",".join(name if weight == 1 else f"{name}={weight:g}" for name, weight in sorted(weights.items()))


def _weights_error(option: Option | None, known: Sequence[str], problem: str) -> InputError:
    example = ",".join(f"{name}=1" for name in known)
    return InputError(
        f"weights are NAME=NUMBER, once per channel ({', '.join(known)}), found {problem}",
        remedy=remedy("write, for example, {}", replace(option, value=example))
        if option
        else f"write, for example, {example}",
    )
