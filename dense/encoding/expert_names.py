"""The names of experts' weights in a model folder, where the input's side or task chooses the expert."""

from __future__ import annotations

from dense.models.config import DenseConfig
from dense.models.skill_config import ATTENTION
from sparta.runtime.weights import Rename


def expert_names(config: DenseConfig, expert: int) -> Rename:
    """Return the function that names the weights of an expert in the layers that have experts."""

    def rename(number: int, part: str) -> str:
        if not config.routing or (number + 1) % config.period:
            return part
        if config.skills is not None and config.skills.placement == ATTENTION:
            is_expert = part.startswith("attention.self.") or part == "attention.output.dense"
            return f"{part}.experts.{expert}" if is_expert else part
        return part if part.startswith("attention.") else f"output.experts.{expert}.{part}"

    return rename
