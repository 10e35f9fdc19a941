"""The model sparta-small-zh for sparta."""

from pathlib import Path

FOLDER = Path(__file__).parent / "model"
