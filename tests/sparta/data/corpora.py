"""Small corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def jsonl(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def small(*ids: str) -> str:
    return jsonl(*({"id": i, "text": f"text of {i}"} for i in ids))
