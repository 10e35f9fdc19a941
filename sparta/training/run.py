"""One training: its loop, its validation, checkpoints for exact resuming, and the best model's card.

A batch depends only on the step, so a killed and resumed training sees the same batches in the same order as
an uninterrupted one. Under torchrun, each process takes different batches, and the gradients are averaged.
The first process validates and writes; its checkpoints include the random states of all processes.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
from torch import nn

from sparta.base.checks import path_of
from sparta.base.disk.locks import LOCK, locked_folder
from sparta.base.disk.new_folders import remove_left_overs
from sparta.base.errors import Interrupted, ModelError, folder_in_use
from sparta.base.files import atomic_write, make_folder, storage_errors
from sparta.base.interrupts import interrupt_held
from sparta.base.remedies import Option, remedy
from sparta.models.resolve import encoder_identity
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
from sparta.neural.training_progress import StepProgress
from sparta.runtime.processor import threads
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

_LAYER = re.compile(r"\.layers?\.(\d+)\.")
_EMBEDDINGS = re.compile(r"embeddings|relative_attention_bias")


class TrainingRun[M: nn.Module]:
    """Trains a model with Adam, linear warmup and linear decay, and keeps the best model by validation.

    A subclass defines `loss` and `validate`, and optionally `begin_step`, `parameter_groups` and `facts`. The
    folder gets `log.jsonl`, `state.pt` and `best`.

    :param settings: a dataclass whose fields must not change when a training is resumed
    :param facts: further values that must not change
    :param encoders: the parts of the model that use fast attention in training
    """

    kind = ModelKind("A model.", "")
    figure: Callable[[float], str] | None = "{:.1%}".format
    """Formats a validation figure; None in a training without validation."""
    in_percent = False
    """Whether checkpoints and logs hold validation figures in percent. `TrainResult` has fractions."""
    measured_on = ""
    """The end of the card's validation line: the questions of the validation."""
    validated: tuple[str, ...] = ()
    """The names of the sets whose questions validate."""
    clock = staticmethod(time.monotonic)
    """Returns the time in seconds, by which steps are measured."""
    encoder: str | None = None
    """The folder or name of what the model began from, if the settings do not name it."""
    trained_before = False
    """Whether the model was trained before and may stay the best."""

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
        self.memory: dict[str, float] = {}  # values that the loss keeps between steps, stored in checkpoints
        self.state, self.kept = TrainerState(), 0
        self._step_seconds: list[float] = []
        set_dropout(model, dropout)
        for encoder in encoders:
            use_fast_attention(encoder)
        torch.set_num_threads(min(torch.get_num_threads(), threads()))  # torch sees no quota of a container

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @property
    def batches_per_step(self) -> int:
        """The number of batches per step, over all processes."""
        return self.schedule.accumulate * self.processes

    # ------------------------------------------------------------------ for subclasses

    def begin_step(self) -> None:
        """Prepare the next step.

        Called outside autocast: autocast would cache weights that are cast without gradients, and the step
        would use them.
        """

    def loss(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of batch `step`, which depends only on seed and step, and figures to log."""
        raise NotImplementedError

    def validate(self) -> float:
        """Return the figure to maximize; if figures are equal, the latest model is kept."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return Adam's groups, each optionally with a `factor` of the learning rate."""
        return [{"params": list(self.model.parameters())}]

    def facts(self) -> dict[str, Any]:
        """Return the values that must not change when a training is resumed."""
        settings = settings_of(self.settings) if self.settings else {}
        start = self.encoder or getattr(self.settings, "encoder", None)
        begun = {"began_from": encoder_identity(start)} if start else {}
        trainer_facts = {"processes": self.processes, "trainer": asdict(self.schedule)}
        return {**settings, **begun, **self._more_facts, **trainer_facts}

    def save_best(self) -> None:
        """Save the model, the best so far by validation, in full precision."""
        cast("Any", self.model).save_pretrained(self.folder / "best")

    # ------------------------------------------------------------------ training

    def train(
        self, recipe: TrainSettings, data: Table, *, resume: bool = False, command: str = ""
    ) -> TrainResult:
        """Train; the best model is saved in `folder/best`, with its model card.

        :param data: the card's table of the training data; its first row is the header
        :param command: the command for the model card; empty means the recipe
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
        """Write the model card in the first process, and return the result.

        :param folder: the folder of the best model, if outside this training's folder
        """
        best = folder or self.folder / "best"
        reached = f"{self.figure(state.best)} at step" if self.figure else "none; the model of step"
        reached += f" {state.best_step:,}"
        if not self.rank:
            command = command or str(recipe)
            if self.processes > 1:
                gathered = getattr(self.settings, "gather", False)
                how_batches_are_shared = "sharing each batch" if gathered else "each with its own batches"
                command += f"  # in {self.processes} processes of torchrun, {how_batches_are_shared}"
            write_card(best, self.kind, str(recipe.encoder), data, command, reached + self.measured_on)
        wait_for_all()
        validation = state.best / 100 if self.in_percent else state.best
        seconds = median(self._step_seconds) if self._step_seconds else 0.0
        return TrainResult(best, validation, state.best_step, self.validated, reached, seconds)

    def run(self, *, resume: bool = False) -> TrainerState:
        """Run all steps; with `resume`, continue from the last checkpoint if there is one.

        :raises Interrupted: Ctrl-C; reports how many steps a resumed training will skip. In a training of one
            process, a first Ctrl-C within a step finishes and saves the step.
        :raises IndexStateError: another training is writing to the folder.
        """
        with only_training(self.folder):
            return self._run(resume=resume)

    def _run(self, *, resume: bool) -> TrainerState:
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
            with StepProgress(self.schedule.steps, shown=not self.rank, clock=self.clock) as self._bar:
                self._begin(resume=resume)
                self._bar.begin(self.state.step)
                while self.state.step < self.schedule.steps:
                    # Several processes would stop at different steps, so Ctrl-C then stops at once.
                    with interrupt_held() if self.processes == 1 else nullcontext(()) as interrupted:
                        start = self.clock()
                        self._step()
                        self._step_seconds.append(self.clock() - start)
                    self._end_step(interrupted=bool(interrupted))
        except KeyboardInterrupt:
            raise Interrupted(self.kept, "step") from None
        if not self.rank and self.figure and self.state.best_step == 0 and self.trained_before:
            logger.warning(
                "no step improved the validation score, so the best model is the model of step 0, the start"
            )
        return self.state

    def _begin(self, *, resume: bool) -> None:
        if not self.rank:
            sweep(self.folder)
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
        """Validate and write a checkpoint if either is due."""
        step = self.state.step
        due = step % self.schedule.validate_every == 0 or step == self.schedule.steps
        if interrupted:
            self._save(validated=not due)
            raise KeyboardInterrupt
        if due:
            self._validate()
        if due or step % self.schedule.checkpoint_every == 0:
            self._save()

    def _step(self) -> None:
        self.begin_step()
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
        self._log_step(float(loss.detach()), float(norm), rate, logs)

    def _log_step(self, loss: float, norm: float, rate: float, logs: Mapping[str, float]) -> None:
        """Log a step and show its loss.

        :raises ModelError: the loss or its gradients are not finite. No checkpoint holds this step.
        """
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise ModelError(
                f"the training diverged: loss or gradients of step {self.state.step:,} are not finite",
                where=str(self.folder),
                remedy=remedy(
                    "train with a smaller {} and another {}", Option("learning_rate"), Option("output")
                ),
            )
        self._log(loss=loss, norm=norm, rate=rate, **logs)
        self._bar.step(loss)

    def batch_number(self, part: int) -> int:
        """Return the number of this process's batch for part `part` of the current step."""
        parts = self.state.step * self.schedule.accumulate + part
        return parts * self.processes + self.rank

    def _rate(self, step: int) -> float:
        """Return the learning rate: linear warmup, then linear decay to 0."""
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
        if self.figure:
            self._log(validation=figure)
            self._bar.validation = figure
            logger.info("step %d of %d: validation score %.4f", self.state.step, self.schedule.steps, figure)
        if figure >= self.state.best:
            self.state.best, self.state.best_step = figure, self.state.step
            self.save_best()

    def _log(self, **values: float) -> None:
        if self.rank:
            return
        line = {"step": self.state.step, **{k: round(v, 6) for k, v in values.items()}}
        path = self.folder / "log.jsonl"
        with storage_errors(path), path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    # ------------------------------------------------------------------ checkpoints

    def _save(self, *, validated: bool = True) -> None:
        """Write a checkpoint. All processes must call this method.

        :param validated: whether the validation due at this step is done
        """
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
        checkpoint = io.BytesIO()  # to a full disk, torch writes with an error that does not tell the cause
        torch.save(payload, checkpoint)
        atomic_write(self.folder / "state.pt", lambda stream: stream.write(checkpoint.getbuffer()))
        self.kept = self.state.step

    def _load(self) -> bool:
        """Restore the checkpoint. Returns whether the validation due at its step was done."""
        path = self.folder / "state.pt"
        payload = load_torch_file(path)
        same_arithmetic = remedy(
            f"resume on a device that computes in {'fp32' if self.schedule.bf16 else 'bf16'}, like the first"
            " device, or choose another {}",
            Option("output"),
        )
        stored = payload["facts"]
        if "began_from" in self._facts:  # earlier versions did not store it
            stored = {"began_from": self._facts["began_from"], **stored}
        check_same(stored, self._facts, path, remedies={"trainer.bf16": same_arithmetic})
        self.model.load_state_dict(payload["model"])
        try:
            self._optimizer.load_state_dict(payload["optimizer"])
        except ValueError as error:
            raise ModelError(
                "the checkpoint has other groups of learning rates; another version of sparta wrote it",
                where=str(path),
                remedy=remedy("start a new training with another {}", Option("output")),
            ) from error
        self.state = TrainerState(**payload["state"])
        self.memory.update(payload["memory"])
        self.kept = self.state.step
        restore_random_state(payload["random"], self.device)
        if not self.rank:
            self._cut_log()
        return bool(payload["validated"])

    def _cut_log(self) -> None:
        """Remove the log lines of steps after the checkpoint, because these steps run again."""
        path = self.folder / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) <= self.state.step]
        atomic_write(path, "".join(f"{line}\n" for line in kept).encode())


def trainer_config(recipe: TrainSettings, device: torch.device, **others: float) -> TrainerConfig:
    """Return a recipe's schedule; `others` are fields that the recipe lacks."""
    bf16 = pick_dtype("auto", device) == torch.bfloat16
    return TrainerConfig(bf16=bf16, **{"clip": 2.0, **fields_of(recipe, TrainerConfig), **others})


def rate_groups(
    named_parameters: Iterable[tuple[str, nn.Parameter]], factor: Callable[[str], float]
) -> list[dict[str, Any]]:
    """Return Adam's groups: parameters by the learning-rate factor of their name, in order of appearance."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in named_parameters:
        groups.setdefault(factor(name), []).append(parameter)
    return [{"params": parameters, "factor": rate_factor} for rate_factor, parameters in groups.items()]


def layer_factors(names: Iterable[str], decay: float) -> Callable[[str], float]:
    """Return a function from a parameter's name to a factor: `decay` once for each layer above its layer.

    Embeddings count as the lowest layer, also those of relative positions, which all layers share. Parameters
    outside all layers, such as codes, have the factor of the highest layer. If layers share their weights, as
    in ALBERT, all factors are 1.
    """
    layers = {name: int(match[1]) for name in names if (match := _LAYER.search(name))}
    highest = max(layers.values(), default=-1)

    def factor(name: str) -> float:
        return float(decay ** (highest - layers.get(name, -1 if _EMBEDDINGS.search(name) else highest)))

    return factor


def check_output(output: str | Path, *, resume: bool) -> Path:
    """Return a training's folder; raise if a new training would write into a folder with files.

    Only the first process checks. A training that ended before its first step leaves only its lock file.
    """
    folder = path_of(output, "a folder")
    is_checked = not resume and not process_group()[0] and folder.exists()
    if is_checked and any(path.name != LOCK for path in folder.iterdir()):
        raise folder_in_use(folder)
    return folder


@contextmanager
def only_training(folder: Path) -> Iterator[None]:
    """Create a training's folder, and hold its lock in the first process.

    :raises IndexStateError: another training is writing to the folder.
    """
    make_folder(folder)
    with nullcontext() if process_group()[0] else locked_folder(folder, "training"):
        yield


def sweep(folder: Path) -> None:
    """Remove the temporary files that a killed training left in its folder and in its model."""
    for folder_or_model in (folder, folder / "best"):
        remove_left_overs(folder_or_model)


def _step_of(line: str) -> float:
    """Return the step of a log line; infinity for a last line that a kill has truncated."""
    try:
        return int(json.loads(line)["step"])
    except ValueError:
        return math.inf
