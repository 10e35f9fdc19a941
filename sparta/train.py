"""Training SPARTA (§3.3): eq. 7 with in-batch and nearby negatives, and pressure on the vocabulary."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from sparta.base.corpus import decoded, parse_object, placed, string_field
from sparta.base.errors import IndexStateError, InputError
from sparta.base.files import numbered_lines
from sparta.base.records import Passage
from sparta.inputs import EncoderInput
from sparta.model import SpartaConfig, SpartaModel, fit_quantizer, pad_inputs
from sparta.neural.encoding import pick_device, pick_dtype
from sparta.neural.trainer import Trainer, TrainerConfig, TrainerState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pair:
    """A question, the text that answers it, and texts near the answer that do not."""

    question: str
    answer: Passage
    nearby: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class PairSet:
    """One training file: its pairs and how often batches are drawn from it."""

    name: str
    pairs: tuple[Pair, ...]
    weight: float = 1.0
    batch_size: int = 16


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """What eq. 7 leaves open.

    `term_rate` multiplies the learning rate of the term embeddings. `pressure` weighs the vocabulary penalty,
    estimated each step on `sampled_terms` random entries: squared mean weight of a term (it spreads terms
    over postings lists) plus mean weight. `max_tokens` cuts training texts.
    """

    trainer: TrainerConfig
    term_rate: float = 5.0
    scale_rate: float = 100.0
    pressure: float = 0.001
    sampled_terms: int = 700
    max_tokens: int = 192
    held_out: int = 300
    candidates: int = 500
    int8: bool = True


def read_pairs(
    path: Path, *, unit: str = "sentence", window: int = 12, longest: int = 1200
) -> Iterator[Pair]:
    """Pairs from JSONL: `question`, `positive`, maybe `context` (what the positive stands in) and `title`.

    With unit `sentence` the answer is the positive; nearby negatives are the positives of the `window`
    records before and after it (files keep articles together). With unit `passage` the answer is the context.
    """
    records = list(_read_jsonl(path))
    texts = [_text(record, unit)[:longest] for record in records]
    for i, record in enumerate(records):
        close = {t: None for t in texts[max(0, i - window) : i + window + 1] if t != texts[i]}
        title = str(record.get("title") or "")
        yield Pair(
            str(record["question"]),
            Passage(f"{path.name}:{i}", texts[i], title),
            tuple(Passage("", text, title) for text in close),
        )


def _text(record: dict[str, Any], unit: str) -> str:
    return str((record.get("context") if unit == "passage" else None) or record["positive"])


def _read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in numbered_lines(path):
        with placed(f"{path}:{number}"):
            record = parse_object(decoded(line))
            for name in ("question", "positive"):
                if not string_field(record, name, of=name).strip():
                    raise InputError(f"expected a {name}, found an empty one", remedy="leave such pairs out")
        yield record


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Where the best model lies and how well it validated."""

    folder: Path
    validation: float
    step: int


def open_set(name: str, unit: str, batch_size: int) -> PairSet:
    """A training set from `FILE` or `FILE=WEIGHT`."""
    path, _, weight = name.partition("=")
    try:
        factor = float(weight) if weight else 1.0
    except ValueError:
        raise InputError(f"expected FILE=WEIGHT with a number, found {name!r}") from None
    pairs = tuple(read_pairs(Path(path), unit=unit))
    if len(pairs) < batch_size:
        raise InputError(
            f"expected at least {batch_size} pairs, one batch, found {len(pairs)}",
            where=path,
            remedy="give more pairs, or a smaller batch size",
        )
    return PairSet(f"{Path(path).name}/{unit}", pairs, factor, batch_size)


def train_model(
    sets: Sequence[PairSet],
    *,
    encoder: str,
    output: Path,
    steps: int,
    learning_rate: float,
    pressure: float,
    validate_every: int,
    seed: int,
    tied: bool = False,
    full_precision: bool = False,
    resume: bool = False,
    device: str | None = None,
) -> TrainResult:
    """Train a model from a pretrained encoder; the best by validation MRR ends in `output/best`."""
    if not resume and output.exists() and any(output.iterdir()):
        raise IndexStateError(
            "expected an empty or a new folder, found one that holds files",
            where=str(output),
            remedy="continue with --resume, or choose another --output",
        )
    torch.manual_seed(seed)
    model = SpartaModel.from_encoder(encoder, SpartaConfig(tied=tied)).to(pick_device(device))
    config = TrainConfig(
        TrainerConfig(
            steps=steps,
            learning_rate=learning_rate,
            clip=2.0,
            bf16=pick_dtype("auto", model.device) == torch.bfloat16,
            seed=seed,
            validate_every=validate_every,
        ),
        pressure=pressure,
        int8=not full_precision,
    )
    state = SpartaTraining(model, sets, config, output).run(resume=resume)
    return TrainResult(output / "best", state.best, state.best_step)


class SpartaTraining:
    """One training run: the loss at a step, validation, and what is saved."""

    def __init__(
        self, model: SpartaModel, sets: Sequence[PairSet], config: TrainConfig, folder: Path
    ) -> None:
        self.model, self.config, self.folder = model, config, folder
        self.sets, self.validation = _hold_out(sets, config.held_out)
        self.tokenizer = model.query_tokenizer()
        self.layout = replace(model.config.layout, max_length=config.max_tokens, overlap=0)
        self.allowed = (~model.excluded_terms()).nonzero().squeeze(1)
        self.seed = config.trainer.seed

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train, keep the best by validation MRR in `folder/best`, and give it its quantizer."""
        self._start_scale()
        terms = [p for n, p in self.model.named_parameters() if n == "term_embeddings"]
        scalars = [self.model.scale, self.model.bias]
        known = {id(p) for p in [*terms, *scalars]}
        rest = [p for p in self.model.parameters() if id(p) not in known]
        groups: list[dict[str, Any]] = [
            {"params": rest},
            {"params": terms, "factor": self.config.term_rate},
            {"params": scalars, "factor": self.config.scale_rate},
        ]
        trainer = Trainer(
            self.model,
            [g for g in groups if g["params"]],
            self.loss,
            self.mean_reciprocal_rank,
            self._save_best,
            self.config.trainer,
            self.folder,
            {
                **asdict(self.config),
                "sets": [[s.name, len(s.pairs), s.weight, s.batch_size] for s in self.sets],
            },
        )
        state = trainer.run(resume=resume)
        self._finish()
        return state

    @torch.no_grad()
    def _start_scale(self) -> None:
        """Scale and bias so that an untrained term's weight is neither dead nor saturated.

        Dot products get unit spread, half a spread below zero.
        """
        batch, _ = self._draw(0)
        hidden, _ = self._hidden([pair.answer for pair in batch])
        products = hidden.flatten(0, 1).float() @ self.model.term_matrix()[self.allowed[::37]].T
        self.model.scale.fill_(1 / float(products.std()))
        self.model.bias.fill_(-0.5)

    # ------------------------------------------------------------------ loss

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Eq. 7 over the batch of this step, plus the vocabulary penalty."""
        pairs, rng = self._draw(step)
        documents = [pair.answer for pair in pairs]
        documents += [rng.choice(pair.nearby) for pair in pairs if pair.nearby]
        bags = [self.tokenizer.bag(pair.question) for pair in pairs]
        asked = sorted({term for bag in bags for term in bag})
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sampled = self.allowed[
            torch.randint(len(self.allowed), (self.config.sampled_terms,), generator=generator)
        ]
        columns = torch.cat([torch.tensor(asked), sampled]).to(self.model.device)
        weights = self._weights(documents, columns)
        counts = self._counts(bags, asked)
        scores = counts @ weights[:, : len(asked)].T
        scores = scores.masked_fill(self._same_answer(pairs, documents), float("-inf"))
        target = torch.arange(len(pairs), device=scores.device)
        ranking = functional.cross_entropy(scores, target)
        random_weights = weights[:, len(asked) :]
        vocabulary = len(self.allowed)
        flops = random_weights.mean(0).square().mean() * vocabulary
        lasso = random_weights.mean() * vocabulary
        ramp = min(1.0, step / max(1, self.config.trainer.steps / 3)) ** 2
        loss = ranking + self.config.pressure * ramp * (flops + 0.05 * lasso)
        terms = float((random_weights > 0).float().mean()) * vocabulary
        return loss, {"ranking": float(ranking.detach()), "terms": terms, "flops": float(flops.detach())}

    def _draw(self, step: int) -> tuple[list[Pair], random.Random]:
        """The batch of a step, from one set, as a function of seed and step alone."""
        rng = random.Random(self.seed * 7_919 + step)
        chosen = rng.choices(self.sets, [s.weight for s in self.sets])[0]
        return rng.sample(chosen.pairs, min(chosen.batch_size, len(chosen.pairs))), rng

    def _hidden(self, documents: Sequence[Passage]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs: list[EncoderInput] = [
            self.layout.windows(document, self.model.tokenizer)[0] for document in documents
        ]
        padded = pad_inputs(inputs, pool_special=self.model.config.pool_special)
        ids, mask, segments, pooled = (t.to(self.model.device) for t in padded)
        return self.model.hidden_states(ids, mask, segments), pooled

    def _weights(self, documents: Sequence[Passage], columns: torch.Tensor) -> torch.Tensor:
        """`(n_documents, n_columns)` term weights, eq. 4 to 6, with gradients."""
        hidden, pooled = self._hidden(documents)
        terms = self.model.term_matrix()[columns]
        products = (hidden @ terms.T.to(hidden.dtype)).float()
        products = products.masked_fill(~pooled[:, :, None], float("-inf")).amax(dim=1)
        products = products.clamp_min(-1e6)  # a text without tokens: infinity would make gradients NaN
        return torch.log1p(torch.relu(products * self.model.scale + self.model.bias))

    def _counts(self, bags: Sequence[dict[int, float]], asked: Sequence[int]) -> torch.Tensor:
        column = {term: i for i, term in enumerate(asked)}
        counts = torch.zeros(len(bags), len(asked))
        for row, bag in enumerate(bags):
            for term, count in bag.items():
                counts[row, column[term]] = count
        return counts.to(self.model.device)

    def _same_answer(self, pairs: Sequence[Pair], documents: Sequence[Passage]) -> torch.Tensor:
        """True where a document is the pair's own answer again, in another place."""
        same = torch.tensor([[p.answer.text == d.text for d in documents] for p in pairs])
        same[torch.arange(len(pairs)), torch.arange(len(pairs))] = False
        return same.to(self.model.device)

    # ------------------------------------------------------------------ validation

    @torch.no_grad()
    def mean_reciprocal_rank(self) -> float:
        """MRR of the held-out questions, mean over the sets; candidates are held-out and training answers."""
        return float(np.mean([self._set_mrr(s) for s in self.validation])) if self.validation else 0.0

    def _set_mrr(self, held: PairSet) -> float:
        training = next(s for s in self.sets if s.name == held.name)
        texts = dict.fromkeys(p.answer.text for p in (*held.pairs, *training.pairs[: self.config.candidates]))
        index = {text: i for i, text in enumerate(texts)}
        bags = [self.tokenizer.bag(p.question) for p in held.pairs]
        asked = sorted({term for bag in bags for term in bag})
        columns = torch.tensor(asked, device=self.model.device)
        order = sorted(texts, key=len)
        weights = torch.empty(len(order), len(asked))
        with torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.config.trainer.bf16):
            for start in range(0, len(order), 32):
                batch = order[start : start + 32]
                rows = self._weights([Passage("", text) for text in batch], columns).float().cpu()
                weights[[index[text] for text in batch]] = rows
        scores = self._counts(bags, asked).cpu() @ weights.T
        gold = torch.tensor([index[p.answer.text] for p in held.pairs])
        own = scores[torch.arange(len(gold)), gold]
        ranks = (scores >= own[:, None]).sum(1)  # of equal scores the last place: a dead model gains nothing
        return float(((own > 0) / ranks).mean())

    def _save_best(self) -> None:
        self.model.save_pretrained(self.folder / "best")

    def _finish(self) -> None:
        """Calibrate the best model's quantizer on held-out answers and save it so; once: int8 rounds."""
        best = SpartaModel.load(self.folder / "best")
        if best.config.quantizer:
            return
        texts = [p.answer for s in (self.validation or self.sets) for p in s.pairs[:300]]
        best.config = replace(best.config, quantizer=fit_quantizer(best, texts))
        best.save_pretrained(self.folder / "best", int8=self.config.int8)


def _hold_out(sets: Sequence[PairSet], size: int) -> tuple[list[PairSet], list[PairSet]]:
    """Split off the last pairs of each set for validation: whole stretches, as neighbours stay together."""
    training, validation = [], []
    for one in sets:
        n = min(size, len(one.pairs) // 10)
        training.append(replace(one, pairs=one.pairs[: len(one.pairs) - n]))
        if n:
            validation.append(replace(one, pairs=one.pairs[len(one.pairs) - n :]))
    return training, validation
