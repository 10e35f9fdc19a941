"""The scores of the skills with gradients (Chain-of-Skills, §3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from dense.models.bi_encoder import DenseModel
from dense.models.skill_config import SPAN, lacks
from dense.models.skill_inputs import Span, first_separator
from sparta.neural.inputs import EncoderInput


@dataclass(frozen=True)
class SkillScores:
    """Computes vectors and scores with gradients.

    :param experts: the number of the expert for each kind of input, such as `entity`
    """

    model: DenseModel
    experts: Mapping[str, int]

    def vectors(self, reader: str, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors `(n, width)` of texts, from the expert that `reader` names, such as `entity`."""
        return self.model.vectors(self.experts[reader], inputs)

    def mentions(self, inputs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the vectors of mentions, `(n, width)`: the mean of the first and last wordpieces' states."""
        states, rows = self.model.states(self.experts["mention"], inputs)
        row = torch.tensor(rows, device=states.device)
        first = torch.tensor([i.start for i in inputs], device=states.device)
        last = torch.tensor([i.end - 1 for i in inputs], device=states.device)
        return self.model.scaled((states[row, first] + states[row, last]) / 2)

    def pair_scores(self, pairs: Sequence[EncoderInput]) -> torch.Tensor:
        """Return the score of each pair of question and passage, `(n,)`: [CLS] times the first [SEP]."""
        states, rows = self.model.states(self.experts["rerank"], pairs)
        row = torch.tensor(rows, device=states.device)
        separators = torch.tensor([first_separator(p) for p in pairs], device=states.device)
        return (states[row, 0] * states[row, separators]).sum(1)

    def span_scores(
        self, inputs: Sequence[EncoderInput], spans: Sequence[Sequence[Span]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each text's span scores `(n_spans,)` and threshold. Spans are first and last positions."""
        states, rows = self.model.states(self.experts["span"], inputs)
        head, device, text_scores = self.model.spans, states.device, []
        if head is None:
            raise lacks(SPAN, self.model.config.skills.skills if self.model.config.skills else ())
        with torch.autocast(device.type, enabled=False):  # bf16 is too coarse to rank close scores
            for row, text_spans in zip(rows, spans, strict=True):
                first = torch.tensor([a for a, _ in text_spans], dtype=torch.long, device=device)
                last = torch.tensor([b for _, b in text_spans], dtype=torch.long, device=device)
                text_scores.append((head.scores(states[row], first, last), head.threshold(states[row])))
        return text_scores
