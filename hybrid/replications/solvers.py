"""From the best passages to a task's answer: a title, a span, a label, a generated text (Table 4)."""

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
    """Gives an answer, with the best passages at hand; `name` stands in the table."""

    name: str

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return one answer for each input; "" for none."""


class TitleSolver:
    """Entity linking: the page of the best passage is the entity."""

    name = "title"

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the title of the best passage of each question."""
        return [passages[0].title if passages else "" for passages in hits]


class ReaderSolver:
    """Slot filling and questions: the reader's best span.

    `subject [SEP] relation` is read as `relation of subject?`: the reader knows questions.
    """

    name = "reader"

    def __init__(self, answerer: Answerer) -> None:
        self.answerer = answerer

    def solve(self, inputs: Sequence[str], hits: Sequence[Sequence[Hit]]) -> list[str]:
        """Return the reader's best answer to each question."""
        answers = [
            self.answerer.answer_hits(as_question(text), passages) if passages else []
            for text, passages in zip(inputs, hits, strict=True)
        ]
        return [passages[0].answer if passages else "" for passages in answers]


def as_question(text: str) -> str:
    """Return KILT's slot `subject [SEP] relation` as a question; other texts unchanged."""
    subject, separator, relation = text.partition(SEPARATOR)
    if not separator or SEPARATOR in relation:
        return text
    return f"{relation.strip()} of {subject.strip()}?"


class GeneratingSolver:
    """Any task: a sequence-to-sequence model of transformers, such as a BART trained on it.

    It reads the passages, then the input (Petroni et al., 2020): the text of each with its title before it,
    and of all together what the input leaves of `max_length` tokens.

    :param name: a folder, or a model on the hub
    :raises ModelError: no such model.
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
        known = getattr(self.model.config, "max_position_embeddings", None) or max_length
        self.max_length, self.longest = min(max_length, known), longest

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
        """Return the token ids of passages and question, at most `max_length`; passages are cut first."""
        texts = map(text_of, hits)
        passages = " ".join(
            f"{text_hit.title}. {text_hit.text}" if text_hit.title else text_hit.text for text_hit in texts
        )
        room = self.max_length - len(self.tokenizer(f" {text}")["input_ids"])
        passages = self._beginning(passages, room)
        self.tokenizer.truncation_side = "left"  # the input, which comes last, is read in any case
        encoded = self.tokenizer(f"{passages} {text}".strip(), truncation=True, max_length=self.max_length)
        token_ids: list[int] = encoded["input_ids"]
        return token_ids

    def _beginning(self, text: str, room: int) -> str:
        """The first `room` tokens of a text; a tokenizer without places (ByT5) writes them anew."""
        if room <= 0:
            return ""
        fast = self.tokenizer.is_fast
        plain = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=fast, verbose=False)
        ids = plain["input_ids"]
        if len(ids) <= room:
            return text
        if not fast:
            return str(self.tokenizer.decode(ids[:room]))
        return text[: plain["offset_mapping"][room - 1][1]]


def open_solver(retriever: Retriever, by: str, model: str | None = None, device: str | None = None) -> Solver:
    """Open what answers: `title`, a `reader`, a classifier (`label`), or a model that writes (`generated`).

    :param model: its folder or name; none for titles, and None for the reader that ships for the language
    :raises InputError: a model that is not wanted, or none where one is.
    :raises ModelError: no such model.
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
    return ReaderSolver(Answerer(retriever, opened))
