"""The training loop: schedule, accumulation, validation, checkpoints that resume exactly.

A batch is a function of the step alone, so a training that was killed and resumed sees the same batches in
the same order as one that was not. Under torchrun, each process takes batches of its own and the gradients
are averaged; the first process validates and writes, also what each process draws next at random.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from sparta.base.errors import InputError, Interrupted
from sparta.base.files import atomic_path, atomic_write
from sparta.neural.checkpoint import load_torch_file
from sparta.neural.encoding import pick_device

logger = logging.getLogger(__name__)
_PATIENCE = timedelta(days=1)
"""Processes wait while the first one validates, which may take hours."""


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """How long, how fast, how often; a checkpoint is written at each validation too.

    `warmup` is a share of the steps; `clip` bounds the gradient norm; the gradients of `accumulate` batches
    are averaged in one step.
    """

    steps: int
    learning_rate: float = 3e-5
    warmup: float = 0.1
    clip: float = 1.0
    accumulate: int = 1
    bf16: bool = True
    seed: int = 13
    validate_every: int = 200
    checkpoint_every: int = 200

    @property
    def batches(self) -> int:
        """How many batches all steps and processes take together."""
        return self.steps * self.accumulate * process_group()[1]


@dataclass
class TrainerState:
    """How far training got and the best validation so far."""

    step: int = 0
    best: float = -math.inf
    best_step: int = 0


class Trainer:
    """Runs `loss(batch(step))` for the configured steps with Adam, linear warmup and linear decay.

    `groups` are Adam's parameter groups; each may carry a `factor` for its learning rate. `validate` gives
    the figure to maximise; `save_best` is called when none was higher: of equal ones the last is kept. The
    folder gets `log.jsonl` and `state.pt`. `facts` are what else must be the same for a training to be
    continued; `memory` is what the loss carries from step to step: it is kept in the checkpoint. With
    `validate_first`, the model as it comes is the first that can be the best.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: Iterable[dict[str, Any]],
        loss: Callable[[int], tuple[torch.Tensor, dict[str, float]]],
        validate: Callable[[], float],
        save_best: Callable[[], None],
        config: TrainerConfig,
        folder: Path,
        facts: Mapping[str, Any] | None = None,
        memory: dict[str, float] | None = None,
        validate_first: bool = False,
    ) -> None:
        self.model, self.loss, self.validate, self.save_best = model, loss, validate, save_best
        self.config, self.folder = config, folder
        self.facts = {**(facts or {}), "trainer": asdict(config)}
        self.memory = {} if memory is None else memory
        self.validate_first = validate_first
        self.rank, self.processes = process_group()
        self.groups = [dict(g) for g in groups]
        self.optimizer = torch.optim.Adam(
            [{"params": g["params"]} for g in self.groups], lr=config.learning_rate, fused=True
        )
        self.state = TrainerState()
        self.kept = 0

    def run(self, *, resume: bool = False) -> TrainerState:
        """Train to the end; with `resume`, from the last checkpoint if there is one.

        :raises Interrupted: Ctrl-C; says how many steps a resumed training will not have to repeat. A first
            Ctrl-C within a step, in a training of one process, lets the step end and keeps it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        _seed(self.config.seed + self.rank)
        try:
            self._begin(resume=resume)
            while self.state.step < self.config.steps:
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
        if self.validate_first:
            self._validate()

    def _end_step(self, *, interrupted: bool) -> None:
        """Validate and write a checkpoint when it is time."""
        at = self.state.step
        due = at % self.config.validate_every == 0 or at == self.config.steps
        if interrupted:
            self._save(validated=not due)
            raise KeyboardInterrupt
        if due:
            self._validate()
        if due or at % self.config.checkpoint_every == 0:
            self._save()

    def _step(self) -> None:
        self.model.train()
        rate = self._rate(self.state.step)
        for group, own in zip(self.optimizer.param_groups, self.groups, strict=True):
            group["lr"] = rate * own.get("factor", 1.0)
        logs: dict[str, float] = {}
        for part in range(self.config.accumulate):
            device = next(self.model.parameters()).device.type
            with torch.autocast(device, dtype=torch.bfloat16, enabled=self.config.bf16):
                loss, logs = self.loss(self.batch_number(part))
            (loss / self.config.accumulate).backward()
        self._average_gradients()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.state.step += 1
        self._log(loss=float(loss.detach()), norm=float(norm), rate=rate, **logs)

    def batch_number(self, part: int) -> int:
        """Return which batch this process takes as part `part` of the present step."""
        parts = self.state.step * self.config.accumulate + part
        return parts * self.processes + self.rank

    def _average_gradients(self) -> None:
        """A parameter that no process's batch needed, such as another skill's expert, stays as it is."""
        if self.processes == 1:
            return
        learning = [p for p in self.model.parameters() if p.requires_grad]
        needed = torch.tensor([p.grad is not None for p in learning], device=learning[0].device).int()
        distributed.all_reduce(needed)
        for parameter, processes in zip(learning, needed.tolist(), strict=True):
            if processes:
                if parameter.grad is None:  # this process's batch did not need it
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
                parameter.grad /= self.processes

    def _rate(self, step: int) -> float:
        """Linear warmup, then linear decay to 0."""
        warm = max(1, int(self.config.steps * self.config.warmup))
        if step < warm:
            return self.config.learning_rate * (step + 1) / warm
        return self.config.learning_rate * (self.config.steps - step) / max(1, self.config.steps - warm)

    def _validate(self) -> None:
        if self.rank:
            return
        self.model.eval()
        with torch.no_grad():
            figure = self.validate()
        self._log(validation=figure)
        logger.info("step %d of %d: validation %.4f", self.state.step, self.config.steps, figure)
        if figure >= self.state.best:
            self.state.best, self.state.best_step = figure, self.state.step
            self.save_best()

    def _log(self, **values: float) -> None:
        if self.rank:
            return
        line = {"step": self.state.step, **{k: round(v, 6) for k, v in values.items()}}
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def _save(self, *, validated: bool = True) -> None:
        """Write the checkpoint; all processes come here. `validated`: what was due at this step is done."""
        random_states = self._random_states()
        if self.rank:
            return
        payload = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "state": asdict(self.state),
            "facts": self.facts,
            "memory": self.memory,
            "random": random_states,
            "validated": validated,
        }
        with atomic_path(self.folder / "state.pt") as temporary:
            torch.save(payload, temporary)
        self.kept = self.state.step

    def _random_states(self) -> list[dict[str, torch.Tensor]]:
        """What each process draws next: on the CPU and, where its model is on one, on its GPU."""
        device = next(self.model.parameters()).device
        own = {"cpu": torch.get_rng_state()}
        if device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(device)
        if self.processes == 1:
            return [own]
        everyone: list[dict[str, torch.Tensor]] = [{} for _ in range(self.processes)]
        for name, state in own.items():
            parts = [torch.empty_like(state, device=device) for _ in everyone]
            distributed.all_gather(parts, state.to(device))
            for states, part in zip(everyone, parts, strict=True):
                states[name] = part.cpu()
        return everyone

    def _load(self) -> bool:
        """Go back to the checkpoint; whether what was due at its step has been validated."""
        payload = load_torch_file(self.folder / "state.pt")
        self._check(payload["facts"])
        self.model.load_state_dict(payload["model"])
        self.optimizer.load_state_dict(payload["optimizer"])
        self.state = TrainerState(**payload["state"])
        self.memory.update(payload["memory"])
        self.kept = self.state.step
        self._restore_random(payload)
        if not self.rank:
            self._cut_log()
        return bool(payload["validated"])

    def _check(self, stored: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another training."""
        was, now = _flat(stored), _flat(self.facts)
        differing = sorted(k for k in {*was, *now} if was.get(k) != now.get(k))
        if differing:
            remedy = "repeat the original command with --resume, or choose another --output"
            if differing == ["trainer.bf16"]:
                remedy = (
                    f"resume on a device that computes in {'bf16' if was[differing[0]] else 'fp32'}, as the"
                    " first did, or choose another --output"
                )
            raise InputError(
                "expected the same training settings as the checkpoint's, found another "
                + ", ".join(differing),
                where=str(self.folder / "state.pt"),
                remedy=remedy,
            )

    def _restore_random(self, payload: Mapping[str, Any]) -> None:
        """Let this process draw on where it stopped; say so where the checkpoint does not know."""
        device = next(self.model.parameters()).device
        states = payload["random"]
        own = states[self.rank] if self.rank < len(states) else {}
        if "cpu" in own:
            torch.set_rng_state(own["cpu"])
        if device.type == "cuda" and "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"], device)
        if "cpu" not in own or (device.type == "cuda" and "cuda" not in own):
            logger.warning(
                "process %d: the checkpoint lacks its random state on this device, so dropout will not be"
                " that of a training which never stopped",
                self.rank,
            )

    def _cut_log(self) -> None:
        """Lines written after the checkpoint belong to steps that will be run again."""
        path = self.folder / "log.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [line for line in lines if _step_of(line) <= self.state.step]
        atomic_write(path, "".join(f"{line}\n" for line in kept).encode())


def _flat(facts: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """Facts by their full names: those of a mapping after its own."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        flat |= _flat(value, f"{head}{name}.") if isinstance(value, Mapping) else {f"{head}{name}": value}
    return flat


def process_group() -> tuple[int, int]:
    """Rank and number of processes; under torchrun, the group is made at the first call."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    if not distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=_PATIENCE)
        atexit.register(_leave_gloo)
    return distributed.get_rank(), distributed.get_world_size()


def _leave_gloo() -> None:
    """End the threads of gloo before the interpreter does, which now and then takes the process down."""
    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()


def mean_of_all(figure: float, device: torch.device) -> float:
    """Return the mean of a figure over all processes, which all ask for it at once: the same for each."""
    processes = process_group()[1]
    if processes == 1:
        return figure
    total = torch.tensor(figure, dtype=torch.float32, device=device)
    distributed.all_reduce(total)
    return float(total) / processes


def wait_for_all() -> None:
    """Go on when all processes have come here: what the first one writes is there then."""
    if process_group()[1] > 1:
        distributed.barrier()


def training_device(name: str | None) -> torch.device:
    """Return the named device, or the best there is; under torchrun each process has a GPU of its own."""
    device = pick_device(name)
    if device.type != "cuda" or process_group()[1] == 1:
        return device
    if name and ":" in name:
        raise InputError(
            f"expected a GPU for each process of torchrun, found {name!r} for all",
            remedy="leave --device out, or choose the GPUs by CUDA_VISIBLE_DEVICES",
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def set_dropout(module: nn.Module, probability: float) -> None:
    """Give all dropout layers this probability; on a CPU, none makes a step several times faster."""
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = probability


def use_fast_attention(encoder: nn.Module) -> None:
    """Choose the form of attention with the cheapest gradients: on a CPU the one in plain matrix products.

    The fused kernel of torch is the faster one to read with, but its backward pass in bf16 took three times
    as long (12 texts of 179 wordpieces, one thread).
    """
    choose = getattr(encoder, "set_attn_implementation", None)
    if choose and next(encoder.parameters()).device.type == "cpu":
        choose("eager")


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


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # a process's own seed may be one higher than NumPy takes
    torch.manual_seed(seed)
