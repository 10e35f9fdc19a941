"""The model reranker-minilm-en for sparta."""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
