"""The model card of a model with skills."""

from __future__ import annotations

from collections.abc import Sequence

from dense.training.skill_examples import SkillSet
from sparta.base.files import atomic_write, sha256_file
from sparta.training.options import TrainResult

HELD_OUT = "mean over the sets of reciprocal rank, of spans F1"


def write_skill_card(
    result: TrainResult, sets: Sequence[SkillSet], encoder: str, command: str, measured_by: str = HELD_OUT
) -> None:
    """Write `README.md` beside the weights: what the model can, what it learnt from, how to make it again."""
    rows = [
        f"| {one.skill} | {one.name} | {one.weight:g} | {len(one.examples):,} | `{one.fingerprint()}` |"
        for one in sets
    ]
    lines = [
        *("---", "library_name: sparta", "tags: [dense-retrieval, chain-of-skills, sparta]", "---", ""),
        f"# {result.folder.absolute().parent.name}",
        "",
        f"One encoder with several skills. It began as `{encoder}`.",
        "",
        *("| skill | set | weight | examples | fingerprint |", "|---|---|---|---|---|", *rows, ""),
        f"    {command}",
        "",
        f"Validation ({measured_by}, in percent): {result.reached}.",
        "",
        f"`model.safetensors` SHA-256 `{sha256_file(result.folder / 'model.safetensors')}`",
    ]
    atomic_write(result.folder / "README.md", ("\n".join(lines) + "\n").encode())
