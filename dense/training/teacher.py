"""A sparta bi-encoder as a teacher of other models (listwise distillation)."""

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
    """A teacher that scores passages with DPR, TASER or a Poly-Encoder. Caches the vectors of passages."""

    def __init__(self, name: str, folder: Path, *, device: str | None = None) -> None:
        self.name = Path(name).name
        self.model = DenseModel.load(folder).to(device or "cpu")
        self.reads_context = self.model.config.layout.use_context
        self._cache: VectorCache[tuple[str, str, str, int], npt.NDArray[np.float16]] = VectorCache()

    @torch.no_grad()
    def scores(self, questions: Sequence[str], candidates: Sequence[Passage]) -> torch.Tensor:
        """Return the model's scores `(n_questions, n_candidates) float32`."""
        keys = [(passage.title, passage.text, passage.context, passage.start) for passage in candidates]
        if not self.reads_context:
            keys = [(title, text, "", 0) for title, text, _, _ in keys]
        vectors = torch.from_numpy(np.stack(self._cache.get(keys, candidates, self._encode))).float()
        return self.model.score(torch.from_numpy(self.model.encode_questions(list(questions))), vectors)

    def _encode(self, candidates: list[Passage]) -> npt.NDArray[np.float16]:
        return self.model.encode_passages(candidates).astype(np.float16)


def open_bi_encoder(name: str, device: str | None = None) -> Teacher | None:
    """Return a bi-encoder as a teacher, from a folder of `dense train` or the name of the shipped model.

    Returns None for all other names.
    """
    folder = bi_encoder_folder(name)
    return DenseModelTeacher(name, folder, device=device) if folder else None
