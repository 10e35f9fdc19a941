"""One training: its loop, validation, checkpoints that resume exactly, and the card of its best model.

A batch is a function of the step alone, so a training that was killed and resumed sees the same batches in
the same order as one that was not. Under torchrun, each process takes its own batches and the gradients
are averaged; the first process validates and writes, also what each process draws next at random.
"""

from __future__ import annotations

import json
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from sparta.base.checks import path_of
from sparta.base.errors import Interrupted, folder_in_use
from sparta.base.files import atomic_path, atomic_write
from sparta.base.remedies import Option, remedy
from sparta.neural.backbones import set_dropout, use_fast_attention
from sparta.neural.checkpoint import load_torch_file
from sparta.neural.encoding import pick_dtype
from sparta.neural.processes import (
    average_gradients,
    process_group,
    random_states,
    restore_random_state,
    seed_all,
    wait_for_all,
)
from sparta.training.model_card import ModelKind, Table, write_card
from sparta.training.options import (
    TrainerConfig,
    TrainerState,
    TrainResult,
    TrainSettings,
    check_same,
    fields_of,
    settings_of,
)

logger = logging.getLogger(__name__)


class TrainingRun[M: nn.Module]:
    """Trains a model with Adam, linear warmup and linear decay, and keeps the best by validation.

    A subclass says what differs: `loss`, `validate`, maybe `parameter_groups` and `facts`. The folder gets
    `log.jsonl`, `state.pt` and `best`.

    :param settings: a dataclass whose fields must be the same for a training to be resumed
    :param facts: what else must be the same
    :param encoders: parts of the model whose attention is to be fast in training
    """

    kind = ModelKind("A model.", "")
    figure: Callable[[float], str] | None = "{:.1%}".format
    """Writes a validation; None in a training without."""
    measured_on = ""
    """What the card says after the figure: on which questions."""
    validated: tuple[str, ...] = ()
    """The sets whose questions validate."""
    trained_before = False
    """Whether the model as it comes may stay the best."""

    def __init__(
        self,
        model: M,
        schedule: TrainerConfig,
        folder: Path,
        settings: Any = None,
        facts: Mapping[str, Any] | None = None,
        *,
        encoders: Iterable[nn.Module] = (),
        dropout: float = 0.0,
    ) -> None:
        self.model, self.schedule, self.folder, self.settings = model, schedule, folder, settings
        self._more_facts = dict(facts or {})
        self.rank, self.processes = process_group()
        self.memory: dict[str, float] = {}  # what the loss carries from step to step; checkpoints keep it
        self.state, self.kept = TrainerState(), 0
        set_dropout(model, dropout)
        for encoder in encoders:
            use_fast_attention(encoder)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def batches_per_step(self) -> int:
        """How many batches all processes take together."""
        return self.schedule.accumulate * self.processes

    # ------------------------------------------------------------------ what differs

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of batch `step`, a function of seed and step alone, and what to log."""
        raise NotImplementedError

    def validate(self) -> float:
        """Return the figure to maximize; of equal figures the last model is kept."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Adam's groups, each maybe with a `factor` of the learning rate."""
        return [{"params": list(self.model.parameters())}]

    def facts(self) -> dict[str, Any]:
        """Return what must be the same for a training to be resumed."""
        settings = settings_of(self.settings) if self.settings else {}
        shared = {"processes": self.processes, "trainer": asdict(self.schedule)}
        return {**settings, **self._more_facts, **shared}

    def save_best(self) -> None:
        """Write the model, which has just validated best, in full precision."""
        cast("Any", self.model).save_pretrained(self.folder / "best")

    # ------------------------------------------------------------------ training

    def train(
        self, recipe: TrainSettings, data: Table, *, resume: bool = False, command: str = ""
    ) -> TrainResult:
        """Train; the best model ends in `folder/best`, with its model card.

        :param data: the card's table of the training data; its first row is the header
        :param command: what the card names as the command; otherwise the recipe
        """
        return self.finish(self.run(resume=resume), recipe, data, command)

    def finish(
        self,
        state: TrainerState,
        recipe: TrainSettings,
        data: Table,
        command: str = "",
        folder: Path | None = None,
    ) -> TrainResult:
        """Let the first process write the model card; return the result.

        :param folder: where the best model lies, if not in this training's folder
        """
        best = folder or self.folder / "best"
        reached = f"{self.figure(state.best)} at step" if self.figure else "none; the model of step"
        reached += f" {state.best_step:,}"
        if not self.rank:
            command = command or str(recipe)
            if self.processes > 1:
                gathered = getattr(self.settings, "gather", False)
                shared = "sharing each batch" if gathered else "each with its own batches"
                command += f"  # in {self.processes} processes of torchrun, {shared}"
            write_card(best, self.kind, str(recipe.encoder), data, command, reached + self.measured_on)
        wait_for_all()
        return TrainResult(best, state.best, state.best_step, self.validated, reached)

    def run(self, *, resume: bool = False) -> TrainerState:
        """Run all steps; with `resume`, from the last checkpoint if there is one.

        :raises Interrupted: Ctrl-C; says how many steps a resumed training will not have to repeat. A first
            Ctrl-C within a step, in a training of one process, lets the step end and keeps it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state, self.kept = TrainerState(), 0
        self._facts = self.facts()
        self._groups = [group for group in self.parameter_groups() if group["params"]]
        self._optimizer = torch.optim.Adam(
            [{"params": group["params"]} for group in self._groups],
            lr=self.schedule.learning_rate,
            fused=True,
        )
        seed_all(self.schedule.seed + self.rank)
        try:
            self._begin(resume=resume)
            while self.state.step < self.schedule.steps:
                with _interrupt_held(self.processes) as interrupted:
                    self._step()
                self._end_step(interrupted=bool(interrupted))
        except KeyboardInterrupt:
            raise Interrupted(self.kept, "step") from None
        return self.state

    def _begin(self, *, resume: bool) -> None:
        if resume and (self.folder / "state.pt").exists():
            if not self._load():
                self._validate()
                self._save()
            return
        if not self.rank:
            (self.folder / "log.jsonl").unlink(missing_ok=True)
        if self.trained_before:
            self._validate()

    def _end_step(self, *, interrupted: bool) -> None:
        """Validate and write a checkpoint when it is time."""
        at = self.state.step
        due = at % self.schedule.validate_every == 0 or at == self.schedule.steps
        if interrupted:
            self._save(validated=not due)
            raise KeyboardInterrupt
        if due:
            self._validate()
        if due or at % self.schedule.checkpoint_every == 0:
            self._save()

    def _step(self) -> None:
        self.model.train()
        rate, parts = self._rate(self.state.step), self.schedule.accumulate
        for group, settings in zip(self._optimizer.param_groups, self._groups, strict=True):
            group["lr"] = rate * settings.get("factor", 1.0)
        logs: dict[str, float] = {}
        for part in range(parts):
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.schedule.bf16):
                loss, logs = self.loss(self.batch_number(part))
            (loss / parts).backward()
        average_gradients(self.model, self.processes)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.schedule.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.state.step += 1
        self._log(loss=float(loss.detach()), norm=float(norm), rate=rate, **logs)

    def batch_number(self, part: int) -> int:
        """Return which batch this process takes as part `part` of the present step."""
        parts = self.state.step * self.schedule.accumulate + part
        return parts * self.processes + self.rank

    def _rate(self, step: int) -> float:
        """Linear warmup, then linear decay to 0."""
        schedule = self.schedule
        warm = max(1, int(schedule.steps * schedule.warmup))
        if step < warm:
            return schedule.learning_rate * (step + 1) / warm
        return schedule.learning_rate * (schedule.steps - step) / max(1, schedule.steps - warm)

    def _validate(self) -> None:
        if self.rank:
            return
        self.model.eval()
        with torch.no_grad():
            figure = self.validate()
        self._log(validation=figure)
        logger.info("step %d of %d: validation %.4f", self.state.step, self.schedule.steps, figure)
        if figure >= self.state.best:
            self.state.best, self.state.best_step = figure, self.state.step
            self.save_best()

    def _log(self, **values: float) -> None:
        if self.rank:
            return
        line = {"step": self.state.step, **{k: round(v, 6) for k, v in values.items()}}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    # ------------------------------------------------------------------ checkpoints

    def _save(self, *, validated: bool = True) -> None:
        """Write the checkpoint; all processes come here. `validated`: what was due at this step is done."""
        states = random_states(self.device)
        if self.rank:
            return
        payload = {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "state": asdict(self.state),
            "facts": self._facts,
            "memory": self.memory,
            "random": states,
            "validated": validated,
        }
        with atomic_path(self.folder / "state.pt") as temporary:
            torch.save(payload, temporary)
        self.kept = self.state.step

    def _load(self) -> bool:
        """Go back to the checkpoint; return whether what was due at its step has been validated."""
        path = self.folder / "state.pt"
        payload = load_torch_file(path)
        same_arithmetic = remedy(
            f"resume on a device that computes in {'fp32' if self.schedule.bf16 else 'bf16'}, as the first"
            " did, or choose another {}",
            Option("output"),
        )
        check_same(payload["facts"], self._facts, path, remedies={"trainer.bf16": same_arithmetic})
        self.model.load_state_dict(payload["model"])
        self._optimizer.load_state_dict(payload["optimizer"])
        self.state = TrainerState(**payload["state"])
        self.memory.update(payload["memory"])
        self.kept = self.state.step
        restore_random_state(payload["random"], self.device)
        if not self.rank:
            self._cut_log()
        return bool(payload["validated"])

    def _cut_log(self) -> None:
        """Lines written after the checkpoint belong to steps that will be run again."""
        path = self.folder / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) <= self.state.step]
        atomic_write(path, "".join(f"{line}\n" for line in kept).encode())


def trainer_config(recipe: TrainSettings, device: torch.device, **others: float) -> TrainerConfig:
    """Return how long, how fast and how often a recipe trains; `others` are fields that it does not have."""
    bf16 = pick_dtype("auto", device) == torch.bfloat16
    return TrainerConfig(bf16=bf16, **{"clip": 2.0, **fields_of(recipe, TrainerConfig), **others})


def rate_groups(
    named: Iterable[tuple[str, nn.Parameter]], factor: Callable[[str], float]
) -> list[dict[str, Any]]:
    """Return Adam's groups: parameters by the factor that their names give, in order of appearance."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in named:
        groups.setdefault(factor(name), []).append(parameter)
    return [{"params": parameters, "factor": each} for each, parameters in groups.items()]


def check_output(output: str | Path, *, resume: bool) -> Path:
    """Return the folder of a training, which may hold no files where it begins; only one process checks."""
    folder = path_of(output, "a folder")
    if not resume and not process_group()[0] and folder.exists() and any(folder.iterdir()):
        raise folder_in_use(folder)
    return folder


@contextmanager
def _interrupt_held(processes: int) -> Iterator[list[int]]:
    """Let a first Ctrl-C wait for the end of the block, which then finds it in the list; a second does not.

    Not with several processes, which would each stop at another step, nor where Ctrl-C means something else.
    """
    held: list[int] = []
    if (
        processes > 1
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield held
        return

    def hold(number: int, _: object) -> None:
        held.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _step_of(line: str) -> float:
    """Return the step of a line of the log; a kill may have torn the last one, which belongs to no step."""
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return math.inf
