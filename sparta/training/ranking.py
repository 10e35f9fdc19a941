"""What every retriever's training shares: batches, the ranking loss, distillation, validation."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sparta.base.errors import ModelError, folder_in_use
from sparta.base.files import atomic_write
from sparta.base.records import Passage
from sparta.models.query_encoder import QueryTokenizer
from sparta.neural.inputs import InputLayout
from sparta.neural.trainer import (
    Trainer,
    TrainerConfig,
    TrainerState,
    process_group,
    set_dropout,
    use_fast_attention,
)
from sparta.training.batches import Batch, make_batch
from sparta.training.metrics import RECIPROCAL, Figure, figure_named, reciprocal_rank
from sparta.training.negatives import Bm25, Scorer, bag_matrix, mine
from sparta.training.paragraphs import Paragraph, ParagraphSet, hold_out
from sparta.training.teachers import Teacher, weights_of

VALIDATED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingConfig:
    """What is the same for all retrievers.

    `max_tokens` cuts training texts. Of a paragraph, `questions` at most are asked in one step. `mined` puts
    paragraphs into a batch that BM25 takes for each other's questions; every `mine_every` steps the model
    itself says which these are (0: never). `taught` is the share of the teacher's
    scores in the loss. `dropout` is the encoder's. `held_out` questions and `candidates` training paragraphs
    of each set validate, by the figure `validate_by`: `rr`, `average-rank` or `recall@K`. With `gather`, the
    batches of all processes of a step are one: all their candidates are ranked for all their questions.
    """

    trainer: TrainerConfig
    max_tokens: int = 192
    questions: int = 6
    mined: bool = True
    mine_every: int = 0
    taught: float = 0.5
    dropout: float = 0.0
    gather: bool = False
    held_out: int = 120
    candidates: int = 80
    validate_by: str = RECIPROCAL


class RankingTraining[M: nn.Module, A]:
    """One training run: batches, loss, validation. A subclass says how questions and candidates are scored.

    `M` is the model, `A` what questions become before they are scored. What scores `found_above` or less is
    not found. `further` says that the model was trained before: then it may stay the best.
    """

    found_above = 0.0
    further = False

    def __init__(
        self,
        model: M,
        encoders: Sequence[nn.Module],
        tokenizer: QueryTokenizer,
        sets: Sequence[ParagraphSet],
        config: RankingConfig,
        folder: Path,
        teacher: Teacher | None = None,
    ) -> None:
        self.model, self.folder, self.teacher = model, folder, teacher
        self.ranking_config = config
        self.figure = figure_named(config.validate_by)
        self.tokenizer = tokenizer
        self.seed = config.trainer.seed
        self.memory: dict[str, float] = {}
        self._mined_at = 0
        layout: InputLayout = cast("Any", model).config.layout
        longest = min(config.max_tokens, layout.max_length)
        self.layout = replace(layout, max_length=longest, overlap=0)
        set_dropout(model, config.dropout)
        for encoder in encoders:
            use_fast_attention(encoder)
        sets, self.validation = hold_out([s.only_read(self._read_of) for s in sets], config.held_out)
        self.together = process_group()[1] if config.gather else 1
        sets = [replace(one, batch_size=one.batch_size * self.together) for one in sets]
        self.sets = [self._mined(one) for one in sets] if config.mined else sets

    def _read_of(self, paragraph: Paragraph) -> int:
        """How many characters of a paragraph are read: what its first window holds."""
        return self.layout.first_window_holds(paragraph.whole(), self.tokenizer.tokenizer)

    def _mined(self, one: ParagraphSet) -> ParagraphSet:
        texts = [f"{p.title} {p.text}" for p in one.paragraphs]
        columns = Bm25(texts, self.tokenizer).weigh(texts).T.tocsr()
        return mine(one, lambda encoded: (bag_matrix(encoded, self.tokenizer) @ columns).toarray())

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def validated(self) -> tuple[str, ...]:
        """The sets that have questions to validate on."""
        return tuple(one.name for one in self.validation)

    # ------------------------------------------------------------------ what a retriever is

    def ask(self, questions: Sequence[str]) -> A:
        """Return questions as `score` takes them."""
        raise NotImplementedError

    def score(self, encoded: A, candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`, with gradients."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Adam's groups, each maybe with a `factor` of the learning rate."""
        return [{"params": list(self.model.parameters())}]

    def scorer(self, candidates: Sequence[Passage]) -> Scorer:
        """Return a function from questions to `(n_questions, n_candidates)` scores, without gradients."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return what of the model must be the same for a training to be continued."""
        raise NotImplementedError

    def save_best(self) -> None:
        """Write the model, which has just validated best, to `folder/best`."""
        raise NotImplementedError

    # ------------------------------------------------------------------ training

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train; the best by validation is saved on the way."""
        if not (resume and (self.folder / "state.pt").exists()):
            for left in self.folder.glob("mined-*.json"):  # of a training that never came to a checkpoint
                left.unlink()
        dev = [[s.name, s.fingerprint(), s.weight] for s in self.validation if s.dev]
        trainer = Trainer(
            self.model,
            [g for g in self.parameter_groups() if g["params"]],
            self.loss,
            self.validate,
            self.save_best,
            self.ranking_config.trainer,
            self.folder,
            {
                **asdict(self.ranking_config),
                **self.facts(),
                "processes": process_group()[1],
                "sets": [[s.name, s.fingerprint(), s.weight, s.batch_size] for s in self.sets],
                **({"dev": dev} if dev else {}),
                "teacher": self.teacher.name if self.teacher else None,
                "teacher_weights": weights_of(self.teacher),
            },
            self.memory,
            validate_first=self.further,
        )
        return trainer.run(resume=resume)

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of a step, a function of seed and step alone, and what to log."""
        batch = self.batch(step)
        scores = self.score(self.ask(batch.questions), batch.candidates)
        loss = self.ranking(scores, batch, self.taught(batch))
        return loss, {"ranking": float(loss.detach())}

    def batch(self, step: int) -> Batch:
        """Return the batch of a step: sentences, paragraphs and questions of one set."""
        self._mine_again(step)
        paragraphs, rng = self._draw(step // self.together)
        return make_batch(paragraphs, rng, self.ranking_config.questions)

    def _draw(self, step: int) -> tuple[list[Paragraph], random.Random]:
        """The paragraphs of a step, from one set, as a function of seed and step alone."""
        rng = random.Random(self.seed * 7_919 + step)
        chosen = rng.choices(self.sets, [s.weight for s in self.sets])[0]
        return chosen.draw(rng), rng

    def _mine_again(self, batch: int) -> None:
        """Let the model mine when it is time; what it found is kept, for a training that is resumed."""
        trainer = self.ranking_config.trainer
        every = self.ranking_config.mine_every * trainer.batches // trainer.steps
        due = batch // every if every else 0
        if due == self._mined_at:
            return
        self._mined_at = due
        path = self.folder / f"mined-{due:04d}.json"
        if not path.exists():
            self.sets = [
                mine(s, self.scorer([p.whole() for p in s.paragraphs]), above=self.found_above)
                for s in self.sets
            ]
            self.model.train()
            if not process_group()[0]:
                atomic_write(path, json.dumps([s.near for s in self.sets]).encode())
            return
        stored = json.loads(path.read_text(encoding="utf-8"))
        near = [tuple(tuple(own) for own in one) for one in stored]
        self.sets = [replace(s, near=found) for s, found in zip(self.sets, near, strict=True)]

    def ranking(self, scores: torch.Tensor, batch: Batch, taught: torch.Tensor | None) -> torch.Tensor:
        """Eq. 7 of SPARTA, eq. 3 of TASER: over sentences, and over paragraphs; their mean."""
        n = batch.n_sentences
        parts = [
            self._ranking(scores[:, :n], taught, batch, batch.gold_sentence, 0),
            self._ranking(scores[:, n:], taught, batch, batch.gold_paragraph, n),
        ]
        counted = [part for part in parts if part is not None]
        return torch.stack(counted).mean() if counted else scores.sum() * 0  # one paragraph: nothing to rank

    def taught(self, batch: Batch) -> torch.Tensor | None:
        """`(n_questions, n_candidates)`: what the teacher says of a batch; None without one."""
        if self.teacher is None:
            return None
        device = self.device
        with torch.autocast(device.type, enabled=False):  # the student's arithmetic is not the teacher's
            return self.teacher.scores(batch.questions, batch.candidates).to(device)

    def _ranking(
        self,
        scores: torch.Tensor,
        taught: torch.Tensor | None,
        batch: Batch,
        gold: Sequence[int],
        first: int,
    ) -> torch.Tensor | None:
        """Cross entropy of the answer among candidates of one kind, and divergence from the teacher's scores.

        A candidate that has an answer's text, or answers the question elsewhere, is not counted against it.
        None when no question of the batch has an answer of this kind.
        """
        rows = [i for i, g in enumerate(gold) if g >= 0]
        if not rows or scores.shape[1] < 2:
            return None
        scores = scores[rows]
        target = torch.tensor([gold[i] - first for i in rows], device=scores.device)
        right = [batch.also_right(i) for i in rows]
        columns = range(first, first + scores.shape[1])
        same = torch.tensor([[column in own for column in columns] for own in right], device=scores.device)
        same[torch.arange(len(rows)), target] = False
        scores = scores.masked_fill(same, float("-inf"))
        loss = functional.cross_entropy(scores, target)
        if taught is None:
            return loss
        goal = taught[rows, first : first + scores.shape[1]].masked_fill(same, float("-inf"))
        divergence = functional.kl_div(
            scores.log_softmax(1).masked_fill(same, 0), goal.softmax(1), reduction="batchmean"
        )
        return (1 - self.ranking_config.taught) * loss + self.ranking_config.taught * divergence

    # ------------------------------------------------------------------ validation

    def validate(self) -> float:
        """The figure of the held-out questions: mean over sentences and paragraphs, weighted over the sets.

        Candidates are all held-out paragraphs, and their sentences, and some of training; a dev set's own.
        """
        return self._validation(self.figure)

    def mean_reciprocal_rank(self) -> float:
        """The same, of reciprocal ranks."""
        return self._validation(reciprocal_rank)

    @torch.no_grad()
    def _validation(self, figure: Figure) -> float:
        if not self.validation:
            return 0.0
        figures = [self._of_set(one, figure) for one in self.validation]
        return float(np.average(figures, weights=[one.weight for one in self.validation]))

    def _of_set(self, held: ParagraphSet, figure: Figure) -> float:
        training = [] if held.dev else next(s.paragraphs for s in self.sets if s.name == held.name)
        paragraphs = [*held.paragraphs, *training[: self.ranking_config.candidates]]
        batch = make_batch(held.paragraphs, random.Random(0), 1_000)
        sentences, whole = self._all_scores(batch.questions, paragraphs)
        figures, n = [], batch.n_sentences
        with_sentence = [i for i, g in enumerate(batch.gold_sentence) if g >= 0]
        if with_sentence and sentences.shape[1] > len(paragraphs):
            gold = [batch.gold_sentence[i] for i in with_sentence]
            others = [frozenset(g for g in batch.right[i] if g < n) for i in with_sentence]
            figures.append(figure(sentences[with_sentence], gold, others))
        others = [frozenset(g - n for g in own if g >= n) for own in batch.right]
        figures.append(figure(whole, [g - n for g in batch.gold_paragraph], others))
        return float(np.mean(figures))

    def _all_scores(
        self, questions: Sequence[str], paragraphs: Sequence[Paragraph]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of all sentences and of all paragraphs, in order; paragraphs of like length together."""
        bf16 = self.ranking_config.trainer.bf16
        order = sorted(range(len(paragraphs)), key=lambda i: len(paragraphs[i].text))
        columns: list[torch.Tensor] = [torch.empty(0)] * len(order)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
            encoded = self.ask(questions)
            for start in range(0, len(order), VALIDATED_AT_ONCE):
                chosen = order[start : start + VALIDATED_AT_ONCE]
                texts = [[*paragraphs[i].answers(), paragraphs[i].whole()] for i in chosen]
                scores = self.score(encoded, [text for one in texts for text in one]).float().cpu()
                for i, part in zip(chosen, scores.split([len(one) for one in texts], 1), strict=True):
                    columns[i] = part
        return torch.cat([c[:, :-1] for c in columns], 1), torch.cat([c[:, -1:] for c in columns], 1)


def check_output(output: Path, *, resume: bool) -> None:
    """Refuse to begin a training in a folder that holds files; the first process asks for all."""
    if not resume and not process_group()[0] and output.exists() and any(output.iterdir()):
        raise folder_in_use(output)


def check_length(encoder: nn.Module, max_length: int, option: str = "--max-length") -> None:
    """Refuse texts longer than the encoder has positions for."""
    positions = getattr(getattr(encoder, "config", None), "max_position_embeddings", None)
    if positions and max_length > positions:
        raise ModelError(
            f"expected at most {positions} wordpieces, the positions of the encoder, found {max_length}",
            remedy=f"train with {option} {positions}, or less",
        )
