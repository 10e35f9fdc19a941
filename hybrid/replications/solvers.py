"""Solvers of KILT tasks: answer with a title, span, label or generated text (Maillard et al., Table 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sparta.base.errors import InputError, ModelError
from sparta.base.records import Hit
from sparta.base.remedies import Option, remedy
from sparta.reader.records import text_of
from sparta.search.retriever import Retriever

if TYPE_CHECKING:
    from hybrid.answering.answerer import Answerer

SEPARATOR = "[SEP]"


class Solver(Protocol):
    """Answers the inputs of a task from passages; `name` is the solver's name in result tables."""

    name: str

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return an answer for each input from its hits; "" means no answer."""


class TitleSolver:
    """Solves entity linking: the answer is the title of the best passage's page."""

    name = "title"

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the title of the best passage of each question."""
        return [passages[0].title if passages else "" for passages in hits]


class ReaderSolver:
    """Solves slot filling and question answering: the answer is the reader's best span.

    A slot `subject [SEP] relation` becomes the question `relation of subject?`.
    """

    name = "reader"

    def __init__(self, answerer: Answerer) -> None:
        self.answerer = answerer

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the reader's best answer to each question."""
        answers_of_inputs = [
            self.answerer.answer_hits(as_question(text), hits_of_input) if hits_of_input else []
            for text, hits_of_input in zip(inputs, hits, strict=True)
        ]
        return [answers[0].answer if answers else "" for answers in answers_of_inputs]


def as_question(text: str) -> str:
    """Return KILT's slot `subject [SEP] relation` as a question; other texts unchanged."""
    subject, separator, relation = text.partition(SEPARATOR)
    if not separator or SEPARATOR in relation:
        return text
    return f"{relation.strip()} of {subject.strip()}?"


class GeneratingSolver:
    """Solves any task with a sequence-to-sequence model of transformers, such as a BART trained on the task.

    The model reads the passages, each after its title, then the input (Petroni et al., 2020). The passages
    together get the tokens that the input leaves of `max_length`.

    :param model: a folder, or a model's name on the hub
    :param longest: maximum number of tokens of an answer
    :raises ModelError: the model does not exist
    """

    name = "generated"

    def __init__(
        self, model: str | Path, *, max_length: int = 512, longest: int = 32, device: str | None = None
    ) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        from sparta.neural.checkpoint import from_pretrained
        from sparta.neural.encoding import pick_device

        self.model: Any = from_pretrained(AutoModelForSeq2SeqLM, model).to(pick_device(device))
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(model), trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(
                f"the tokenizer in the model folder cannot be opened: {error}",
                where=str(model),
                remedy="name a folder with config.json, weights and a tokenizer, such as BART or T5",
            ) from error
        position_limit = getattr(self.model.config, "max_position_embeddings", None) or max_length
        self.max_length, self.longest = min(max_length, position_limit), longest

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the generated answer to each question (greedy decoding)."""
        import torch

        inputs_ids = [self.ids(text, passages) for text, passages in zip(inputs, hits, strict=True)]
        batch = self.tokenizer.pad({"input_ids": inputs_ids}, return_tensors="pt").to(self.model.device)
        with torch.inference_mode():
            generated = self.model.generate(
                **{k: batch[k] for k in ("input_ids", "attention_mask")},
                max_new_tokens=self.longest,
                num_beams=1,
                do_sample=False,
            )
        return [output.strip() for output in self.tokenizer.batch_decode(generated, skip_special_tokens=True)]

    def ids(self, text: str, hits: Sequence[Hit]) -> list[int]:
        """Return the token ids of passages and input, at most `max_length`; the passages are cut first."""
        passage_texts = map(text_of, hits)
        passages = " ".join(
            f"{passage.title}. {passage.text}" if passage.title else passage.text for passage in passage_texts
        )
        tokens_left = self.max_length - len(self.tokenizer(f" {text}")["input_ids"])
        passages = self._beginning(passages, tokens_left)
        self.tokenizer.truncation_side = "left"  # keeps the input, which comes last
        encoded = self.tokenizer(f"{passages} {text}".strip(), truncation=True, max_length=self.max_length)
        token_ids: list[int] = encoded["input_ids"]
        return token_ids

    def _beginning(self, text: str, room: int) -> str:
        """Return the first `room` tokens of a text as text; a slow tokenizer (ByT5) decodes them again."""
        if room <= 0:
            return ""
        has_offsets = self.tokenizer.is_fast
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=has_offsets, verbose=False
        )
        ids = encoded["input_ids"]
        if len(ids) <= room:
            return text
        if not has_offsets:
            return str(self.tokenizer.decode(ids[:room]))
        return text[: encoded["offset_mapping"][room - 1][1]]


def open_solver(retriever: Retriever, by: str, model: str | None = None, device: str | None = None) -> Solver:
    """Return the solver that `by` names: `title`, `reader`, `label` (a classifier) or `generated`.

    :param model: the model's folder or name; None for `title`, or for the reader that ships for the language
    :raises InputError: `title` has a model, or `label` or `generated` has none
    :raises ModelError: the model does not exist
    """
    if (model is None) == (by in ("label", "generated")) or (model and by == "title"):
        expected = "no model" if by == "title" else "a model folder"
        raise InputError(
            f"answers by {by} need {expected}, found {model or 'no model'}",
            remedy=remedy(f"{'omit' if by == 'title' else 'name a model with'} {{}}", Option("model")),
        )
    if by == "title":
        return TitleSolver()
    if by == "generated":
        return GeneratingSolver(str(model), device=device)
    if by == "label":
        from hybrid.replications.labels import LabelModel, LabelSolver
        from sparta.neural.encoding import pick_device

        return LabelSolver(LabelModel.load(str(model)).to(pick_device(device)))
    from hybrid.answering.answerer import Answerer
    from sparta.reader.config import reader_folder
    from sparta.reader.reader import Reader

    opened = Reader.open(reader_folder(model, retriever.language), device=device)
    return ReaderSolver(Answerer(retriever, opened, threshold=0))
