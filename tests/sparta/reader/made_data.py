"""What the tests of all readers' trainings share: words, settings of small trainings, files of lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COLORS = ["red", "white", "small", "large", "old", "new", "young", "high"]
THINGS = ["house", "street", "river", "star", "city", "school", "island", "park"]
USUAL: dict[str, Any] = {
    "steps": 8,
    "batch_size": 8,
    "learning_rate": 2e-3,
    "held_out": 20,
    "validate_every": 4,
    "device": "cpu",
}


def written(folder: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path = folder / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path
