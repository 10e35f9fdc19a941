"""Several rankings become one: weighted sums of scores, or of reciprocal ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparta.base.checks import is_number, limit, whole
from sparta.base.errors import InputError
from sparta.base.records import Ranking, Run, ScoredPassage
from sparta.base.remedies import Option, remedy

Columns = tuple[Sequence[str], Sequence[float]]
Scores = npt.NDArray[np.float64]
CANDIDATES = 100
_HIGHEST_WEIGHT = 1e6
RRF_K = 60


def centred(scores: Scores) -> Scores:
    """Ma et al. (2021): the middle of the range becomes 0, its ends ±0.5; equal scores become 0.5."""
    low, high = scores.min(), scores.max()
    if high == low:
        return np.full_like(scores, 0.5)
    return (scores - (low + high) / 2) / (high - low)


def standardized(scores: Scores) -> Scores:
    """Mean 0, standard deviation 1; equal scores become 1."""
    if scores.min() == scores.max():  # their deviation may be rounding, above 0
        return np.ones_like(scores)
    return (scores - scores.mean()) / scores.std()


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
    rank gets nothing there (Cormack et al., 2009).
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"impact": 1.0, "bm25": 1.0})
    method: str = "linear"
    normalization: str = "minmax"
    candidates: int = CANDIDATES
    rrf_k: int = RRF_K

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise InputError(
                f"expected the weights of channels, found {self.weights!r}",
                remedy='give each channel its weight: {"impact": 1.0, "bm25": 1.2}',
            )
        if not all(is_number(w) and abs(w) <= _HIGHEST_WEIGHT for w in self.weights.values()):
            raise InputError(
                f"expected weights of {_HIGHEST_WEIGHT:g} at most, as numbers, found {dict(self.weights)}",
                remedy="give weights near 1: only their ratios count",
            )
        if self.method not in ("linear", "rrf"):
            raise InputError(f"expected the method linear or rrf, found {self.method!r}")
        if self.normalization not in NORMALIZATIONS:
            raise InputError(
                f"expected a normalization of {', '.join(NORMALIZATIONS)}, found {self.normalization!r}"
            )
        whole("candidates", self.candidates)
        whole("rrf_k", self.rrf_k)

    @property
    def label(self) -> str:
        """What is fused, in short: `impact + 1.2·bm25`, `sparta + 1.2·bm25 (zscore)`, `RRF impact + bm25`."""
        if self.method == "rrf":
            return f"RRF {self.sum()}"
        named = self.normalization != "minmax" and len(self.weights) > 1
        return f"{self.sum()} ({self.normalization})" if named else self.sum()

    @property
    def full_label(self) -> str:
        """The same with what it leaves out: `RRF impact + bm25 (k 60, 100 candidates)`."""
        constant = f"k {self.rrf_k}, " if self.method == "rrf" else ""
        return f"{self.label} ({constant}{self.candidates} candidates)"

    def sum(self, term: str = "{}") -> str:
        """What is summed: `impact + 1.2·bm25`; `term` is what a channel adds."""
        parts = ((term.format(name), w) for name, w in self.weights.items())
        return " + ".join(part if w == 1 else f"{w:g}·{part}" for part, w in parts)

    def fuse(self, rankings: Mapping[str, Sequence[ScoredPassage]], k: int | None = None) -> Ranking:
        """Return one ranking of all candidates, or of the `k` best; `rankings` best first, by channel.

        A channel that found nothing adds nothing. Of equal scores, the one that stands first in the first
        channel comes first, then in the next.
        """
        return self.gather(rankings).ranked(list(self.weights.values()), limit("k", k))

    def gather(self, rankings: Mapping[str, Sequence[ScoredPassage]]) -> Candidates:
        """Return the candidates of one question with what each channel adds for them before the weight."""
        return self.gather_columns(
            {name: ([p.passage_id for p in own], [p.score for p in own]) for name, own in rankings.items()}
        )

    def gather_columns(self, found: Mapping[str, Columns]) -> Candidates:
        """Do the same for passage ids and scores in columns."""
        cut: list[Columns] = []
        for name in self.weights:
            own, scores = found.get(name, ((), ()))
            cut.append((own[: self.candidates], scores[: self.candidates]))
        ids = list(dict.fromkeys(itertools.chain.from_iterable(own for own, _ in cut)))
        row = dict(zip(ids, range(len(ids)), strict=True))
        added = np.zeros((len(cut), len(ids)))
        for column, (own, scores) in zip(added, cut, strict=True):
            if own:
                values = self._channel(scores)
                column[:] = self._least(values)
                column[[row[passage_id] for passage_id in own]] = values
        return Candidates(ids, added)

    def _least(self, own: Scores) -> float:
        """Return what a channel adds for a passage that it lacks: less than equal scores, else the least."""
        if self.method == "rrf":
            return 0.0
        least = float(own.min())
        return LEAST_OF_EQUALS.get(self.normalization, least) if least == own.max() else least

    def _channel(self, scores: Sequence[float]) -> Scores:
        """Return what the channel adds for each of its passages, best first, before the weight."""
        if self.method == "rrf":
            return 1 / (self.rrf_k + np.arange(1, len(scores) + 1))
        return NORMALIZATIONS[self.normalization](np.array(scores, dtype=np.float64))

    def fuse_runs(self, runs: Mapping[str, Run], k: int | None = None) -> dict[str, Ranking]:
        """Fuse whole runs, by channel; a question that one run lacks is fused from the others."""
        weights, most = list(self.weights.values()), limit("k", k)
        return {q: found.ranked(weights, most) for q, found in self.gather_runs(runs).items()}

    def gather_runs(self, runs: Mapping[str, Run]) -> dict[str, Candidates]:
        """Return the candidates of every question, to be ranked by several weights."""
        missing = [name for name in self.weights if name not in runs]
        if missing:
            raise InputError(f"expected a run for each channel, found none for {', '.join(missing)}")
        questions = dict.fromkeys(q for name in self.weights for q in runs[name])
        return {q: self.gather({name: runs[name].get(q, ()) for name in self.weights}) for q in questions}


@dataclass(frozen=True, slots=True)
class Candidates:
    """What several channels found for one question.

    `ids` stand in the order that decides between equal scores: the first channel's ranking, then what the
    next one has besides, and so on. `added` is `(channels, n) float64`.
    """

    ids: Sequence[str]
    added: Scores

    def ranked(self, weights: Sequence[float], k: int | None = None) -> Ranking:
        """Return the `k` best by the weighted sum, summed in the order of the channels; it has no docids."""
        total = np.zeros(len(self.ids))
        for weight, column in zip(weights, self.added, strict=True):
            total += weight * column
        order = np.argsort(-total, kind="stable")[:k]
        return Ranking([self.ids[i] for i in order], (), total[order].tolist())


def named(fusions: Sequence[Fusion]) -> dict[str, Fusion]:
    """Return fusions by their labels: where those of different ones are the same, by the full labels.

    :raises InputError: these are the same too.
    """
    found: dict[str, Fusion] = {}
    for one in fusions:
        alike = any(other.label == one.label and other != one for other in fusions)
        label = one.full_label if alike else one.label
        if found.setdefault(label, one) != one:
            raise InputError(
                f"expected fusions with names of their own, found two of {label}",
                remedy="leave one of them out, or compare them one after the other",
            )
    return found


def formula(*fusions: Fusion) -> str:
    """Say what is computed, in one line for fusions that differ in their weights only."""
    first = fusions[0]
    by_rank = first.method == "rrf"
    term = f"1/({first.rrf_k}+rank {{}})" if by_rank else "{}"
    said = f"score = {', or '.join(one.sum(term) for one in fusions)}"
    best = f"each channel's {first.candidates} best"
    if by_rank:
        return f"{said}; {best}"
    normalized = f"scores {_SAID[first.normalization]} over {best}"
    return f"{said}; {normalized}, a passage that a channel lacks counts as its least"


def default_weights(channels: Collection[str]) -> dict[str, float]:
    """Return the weights of the best fusion on held-out sets (docs/benchmarks.md, "Channels and hybrids").

    Vectors and impacts where both are there; BM25 adds nothing significant to impacts, which know its words.
    """
    best = [name for name in ("dense", "impact") if name in channels]
    return dict.fromkeys(best or ["bm25"], 1.0)


def every_hybrid(channels: Collection[str], alpha: float) -> list[dict[str, float]]:
    """Return the weights of all fusions of two and of three channels: α for BM25, 1 for the others.

    The base comes first, dense before impact, and BM25 last (TASER, eq. 7).
    """
    weights = {"dense": 1.0, "impact": 1.0, "bm25": alpha}
    together = (("dense", "bm25"), ("impact", "bm25"), ("dense", "impact"), ("dense", "impact", "bm25"))
    return [{name: weights[name] for name in names} for names in together if set(names) <= set(channels)]


def parse_weights(text: str, known: Sequence[str], option: str = "weights") -> dict[str, float]:
    """Read `bm25=1.2,impact`: weights by channel, in the order given; one that is not given is 1.

    :param option: the name of the option, for the remedy; empty for none
    :raises InputError: no channel, one that is not among the `known`, a repeated one, or no finite number.
    """
    weights: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, given = (piece.strip() for piece in (part if "=" in part else f"{part}=1").rpartition("="))
        if name == "sparta" and name not in known and "impact" in known:
            name = "impact"  # its present name
        if name not in known:
            raise _not_weights(option, known, repr(name or given))
        if name in weights:
            raise _not_weights(option, known, f"{name} twice")
        try:
            weights[name] = float(given)
        except ValueError:
            weights[name] = math.nan
        if not math.isfinite(weights[name]):
            raise _not_weights(option, known, f"{given!r} as the weight of {name}")
    if not weights:
        raise _not_weights(option, known, "none")
    return weights


def _not_weights(option: str, known: Sequence[str], found: str) -> InputError:
    example = ",".join(f"{name}=1" for name in known)
    return InputError(
        f"expected weights of {', '.join(known)} as NAME=NUMBER, with commas, each once, found {found}",
        remedy=remedy("as in {}", Option(option, example)) if option else f"as in {example}",
    )
