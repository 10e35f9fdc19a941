"""A bi-encoder of our own as a teacher of other models (listwise distillation)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dense.models.bi_encoder import DenseModel
from dense.models.resolve import bi_encoder_folder
from sparta.base.records import Passage
from sparta.training.teachers import Teacher

_MOST_KNOWN = 500_000
_Key = tuple[str, str, str, int]


class DenseModelTeacher:
    """DPR, TASER or a Poly-Encoder, by its own score; vectors of texts that come again are kept."""

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.model = DenseModel.load(folder).to(device or "cpu")
        self.reads_context = self.model.config.layout.use_context
        self._known: dict[_Key, npt.NDArray[np.float16]] = {}

    @torch.no_grad()
    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`: dot products, as the model was trained to give them."""
        keys = [(c.title, c.text, c.context, c.start) for c in candidates]
        if not self.reads_context:
            keys = [(title, text, "", 0) for title, text, _, _ in keys]
        new = {key: c for key, c in zip(keys, candidates, strict=True) if key not in self._known}
        if new:
            vectors = self.model.encode_passages(list(new.values())).astype(np.float16)
            self._known |= {key: vectors[i] for i, key in enumerate(new)}
        known = torch.from_numpy(np.stack([self._known[key] for key in keys])).float()
        for key in list(itertools.islice(self._known, max(0, len(self._known) - _MOST_KNOWN))):
            del self._known[key]  # the oldest
        return self.model.score(torch.from_numpy(self.model.encode_questions(list(questions))), known)


def open_bi_encoder(name: str, device: str | None = None) -> Teacher | None:
    """Return the teacher that a name stands for: a folder of `dense train`'s, or the shipped bi-encoder.

    None: it is something else.
    """
    folder = bi_encoder_folder(name)
    return DenseModelTeacher(name, folder, device=device) if folder else None
