"""An untrained SPARTA model from a late-interaction model, whose token states become term embeddings.

    python research/term_start.py COLBERT FOLDER --questions FILE.jsonl[.gz] ... --texts FILE.jsonl[.gz] ...

A late-interaction model scores by the highest product of a question's token with the tokens of a text, which
is SPARTA's eq. 4 if the question's token had no context. So a term's embedding is the mean of the term's
states in training questions. States of the term alone count like `--alone` questions, which also gives an
embedding to terms that no question has.

Eq. 5 has one bias for all terms. A term whose highest product is nearly the same in all texts needs a bias of
its own, so that it is positive in a share of the texts only (`--positive`). A BERT's last states h satisfy
u·h = 1 for a fixed vector u, because of the last layer norm; so the embedding takes in the term's bias as a
multiple of u. Gains and lexical terms are those of the shipped model.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from sparta.base.records import Passage
from sparta.models.config import SpartaConfig
from sparta.models.load import load_module
from sparta.models.resolve import default_model_folder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import encoder_width
from sparta.training.formats import form_of, read_records
from sparta.training.interaction_teachers import LateInteractionTeacher, token_states


def read(paths: Sequence[Path], field: str, other: str = "") -> list[str]:
    """Return the distinct texts of a field of some training files, or of another field where it is empty."""
    records = (record for path in paths for record in read_records(path, form_of(path)))
    texts = dict.fromkeys(str(record.get(field) or record.get(other) or "") for record in records)
    return [text for text in texts if text]


def term_states(teacher: LateInteractionTeacher, questions: Sequence[str], alone: float) -> torch.Tensor:
    """Return each term's mean state in questions, of length 1, `(vocabulary, width)`."""
    tokenizer, marker = teacher.tokenizer, teacher.markers[0]
    size, width = tokenizer.get_vocab_size(), encoder_width(teacher.encoder)
    sums, counts = torch.zeros(size, width), torch.zeros(size)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(list(questions))]
    marked = [[ids[0], marker, *ids[1:]] for ids in encoded]
    for i, states in token_states(teacher.encoder, marked):
        terms = torch.tensor(marked[i])
        sums.index_add_(0, terms, functional.normalize(states, dim=1))
        counts.index_add_(0, terms, torch.ones(len(terms)))
    first, last = encoded[0][0], encoded[0][-1]
    for term, states in token_states(teacher.encoder, [[first, marker, term, last] for term in range(size)]):
        sums[term] += alone * functional.normalize(states, dim=1)[2]
        counts[term] += alone
    return functional.normalize(sums / counts[:, None], dim=1)


def constant_direction(encoder: Any) -> torch.Tensor:
    """Return the vector u with u·h = 1 for all last states h of a BERT, from its last layer norm."""
    norm = encoder.encoder.layer[-1].output.LayerNorm
    direction = 1 / norm.weight.detach()
    return direction / float((norm.bias.detach() * direction).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("colbert", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="training files")
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="training files, for the bias")
    parser.add_argument("--most-questions", type=int, default=24_000)
    parser.add_argument("--most-texts", type=int, default=400)
    parser.add_argument("--alone", type=float, default=2.0, help="questions that a state alone counts like")
    parser.add_argument("--positive", type=float, default=0.07, help="share of texts that have a term")
    parser.add_argument("--context-share", type=float, default=0.4)
    options = parser.parse_args()
    draw = random.Random(13)
    questions, texts = read(options.questions, "question"), read(options.texts, "context", "positive")
    questions = draw.sample(questions, min(options.most_questions, len(questions)))
    texts = draw.sample(texts, min(options.most_texts, len(texts)))
    teacher = LateInteractionTeacher(str(options.colbert), Path(options.colbert))
    terms = term_states(teacher, questions, options.alone)
    shipped = load_module(default_model_folder())
    config = SpartaConfig(shipped.config.layout, context_share=options.context_share)
    model = SpartaModel.from_encoder(options.colbert, config)
    model.eval()
    if not isinstance(shipped, SpartaModel) or not shipped.config.lexical or shipped.gains is None:
        raise SystemExit("the shipped model has no gains")
    model.add_lexical(shipped.config.lexical, shipped.gains.detach().clone())
    embeddings = model.term_matrix()
    model.lexical = shipped.lexical
    highest = highest_products(model, texts, terms)
    bias = highest.quantile(1 - options.positive, dim=0)
    with torch.no_grad():
        direction = constant_direction(model.encoder)
        embeddings.copy_(terms + (bias.mean() - bias)[:, None] * direction)
        above = (highest - bias).clamp_min(0)
        model.scale.fill_(1 / float(above[above > 0].std()))
        model.bias.fill_(-float(bias.mean()) * float(model.scale))
    model.save_pretrained(options.folder)
    counts = f"{len(questions):,} questions, {len(texts):,} texts"
    print(f"{options.folder}: {counts}, scale {model.scale.item():.3g}")


def highest_products(model: SpartaModel, texts: Sequence[str], terms: torch.Tensor) -> torch.Tensor:
    """Return the highest product of each text's states with each term, `(n_texts, vocabulary)`."""
    inputs = model.config.layout.first_windows([Passage("", text) for text in texts], model.tokenizer)
    rows = [window.ids for window in inputs]
    products = [(states[1:-1] @ terms.T).amax(0) for _, states in token_states(model.encoder, rows)]
    return torch.stack(products)


if __name__ == "__main__":
    main()
