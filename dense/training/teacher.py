"""A bi-encoder of our own as a teacher of other models (listwise distillation)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from dense.models.bi_encoder import DenseModel
from dense.models.resolve import bi_encoder_folder
from sparta.base.records import Passage
from sparta.training.teachers import Teacher, VectorCache


class DenseModelTeacher:
    """DPR, TASER or a Poly-Encoder, by its own score; vectors of texts that come again are kept."""

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.model = DenseModel.load(folder).to(device or "cpu")
        self.reads_context = self.model.config.layout.use_context
        self._cache: VectorCache[tuple[str, str, str, int], npt.NDArray[np.float16]] = VectorCache()

    @torch.no_grad()
    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """`(n_questions, n_candidates) float32`: dot products, as the model was trained to give them."""
        keys = [(c.title, c.text, c.context, c.start) for c in candidates]
        if not self.reads_context:
            keys = [(title, text, "", 0) for title, text, _, _ in keys]
        vectors = torch.from_numpy(np.stack(self._cache.get(keys, candidates, self._encode))).float()
        return self.model.score(torch.from_numpy(self.model.encode_questions(list(questions))), vectors)

    def _encode(self, candidates: list[Passage]) -> npt.NDArray[np.float16]:
        return self.model.encode_passages(candidates).astype(np.float16)


def open_bi_encoder(name: str, device: str | None = None) -> Teacher | None:
    """Return the teacher that a name stands for: a folder of `dense train`'s, or the shipped bi-encoder.

    None: it is something else.
    """
    folder = bi_encoder_folder(name)
    return DenseModelTeacher(name, folder, device=device) if folder else None
