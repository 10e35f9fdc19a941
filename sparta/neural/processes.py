"""The processes of torchrun: who they are, what they share, what each draws next at random."""

from __future__ import annotations

import atexit
import logging
import os
import random
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import torch
from torch import distributed, nn

from sparta.base.errors import InputError
from sparta.base.remedies import Option, remedy
from sparta.neural.encoding import pick_device

logger = logging.getLogger(__name__)
_PATIENCE = timedelta(days=1)
"""Processes wait while the first one validates, which may take hours."""
RandomState = dict[str, torch.Tensor]


def process_group() -> tuple[int, int]:
    """Rank and number of processes; under torchrun, the group is made at the first call."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    if not distributed.is_initialized():
        # Imported later, its functions would keep the group in their defaults, and gloo's threads with it.
        import torch.distributed.nn

        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=_PATIENCE)
        atexit.register(_leave_gloo)
    return distributed.get_rank(), distributed.get_world_size()


def _leave_gloo() -> None:
    """End gloo's threads while Python still runs; a thread that outlives Python aborts the process."""
    if distributed.is_initialized() and distributed.get_backend() == "gloo":
        distributed.destroy_process_group()


def wait_for_all() -> None:
    """Go on when all processes have come here: what the first one writes is there then."""
    if process_group()[1] > 1:
        distributed.barrier()


def training_device(name: str | None) -> torch.device:
    """Return the named device, or the best there is; under torchrun each process has its own GPU."""
    device = pick_device(name)
    if device.type != "cuda" or process_group()[1] == 1:
        return device
    if name and ":" in name:
        raise InputError(
            f"expected a GPU for each process of torchrun, found {name!r} for all",
            remedy=remedy("leave {} out, or choose the GPUs by CUDA_VISIBLE_DEVICES", Option("device")),
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def mean_of_all(figure: float, device: torch.device) -> float:
    """Return the mean of a figure over all processes; all must call this together."""
    processes = process_group()[1]
    if processes == 1:
        return figure
    total = torch.tensor(figure, dtype=torch.float32, device=device)
    distributed.all_reduce(total)
    return float(total) / processes


def average_gradients(model: nn.Module, processes: int) -> None:
    """Average gradients over all processes.

    A parameter that no process's batch needed, such as another skill's expert, stays as it is.
    """
    if processes == 1:
        return
    learning = [p for p in model.parameters() if p.requires_grad]
    needed = torch.tensor([p.grad is not None for p in learning], device=learning[0].device).int()
    distributed.all_reduce(needed)
    for parameter, users in zip(learning, needed.tolist(), strict=True):
        if users:
            if parameter.grad is None:  # this process's batch did not need it
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)
            parameter.grad /= processes


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # a seed plus a rank may be one higher than NumPy takes
    torch.manual_seed(seed)


def random_states(device: torch.device) -> list[RandomState]:
    """Return what each process draws next: on the CPU and, where its model is on one, on its GPU."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    processes = process_group()[1]
    if processes == 1:
        return [state]
    states: list[RandomState] = [{} for _ in range(processes)]
    for name, values in state.items():
        parts = [torch.empty_like(values, device=device) for _ in states]
        distributed.all_gather(parts, values.to(device))
        for each, part in zip(states, parts, strict=True):
            each[name] = part.cpu()
    return states


def restore_random_state(states: Sequence[RandomState], device: torch.device) -> None:
    """Let this process draw on where it stopped; warn where the checkpoint lacks its state."""
    rank = process_group()[0]
    state = states[rank] if rank < len(states) else {}
    if "cpu" in state:
        torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if device.type == "mps" and "mps" in state:
        torch.mps.set_rng_state(state["mps"])
    if not {"cpu", device.type} <= state.keys():
        logger.warning(
            "process %d: the checkpoint lacks its random state on this device, so dropout will differ from"
            " a training without interruption",
            rank,
        )
