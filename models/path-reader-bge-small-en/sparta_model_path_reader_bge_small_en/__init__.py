"""The model path-reader-bge-small-en for sparta."""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
