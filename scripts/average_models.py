"""Average the weights of a SPARTA model and of what a training made of it.

python scripts/average_models.py MODEL FURTHER OUTPUT --share 0.3 [--keep who what]

FURTHER is the model folder that a training left, or its state.pt (the last step, not the best). What was
learned last often fits the training texts best and others less; the average of both ends of a training can be
better than either (Wortsman et al., 2022, "Model soups"). The embeddings of terms named by --keep, and the
quantizer, stay as they are in MODEL.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from sparta.models.resolve import QUERY_WEIGHTS, model_folder
from sparta.models.sparse import SpartaModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder or name of a SPARTA model")
    parser.add_argument("further", type=Path, help="folder of the model trained further, or its state.pt")
    parser.add_argument("output", type=Path, help="folder for the average, in 8 bits")
    parser.add_argument("--share", type=float, required=True, help="share of the model trained further")
    parser.add_argument("--keep", nargs="*", default=[], metavar="TERM", help="terms that stay as they are")
    given = parser.parse_args()

    model = SpartaModel.load(model_folder(given.model))
    if given.further.suffix == ".pt":
        other = torch.load(given.further, map_location="cpu", weights_only=True)["model"]
    else:
        other = SpartaModel.load(given.further).state_dict()
    if (weighted := model.config.weighted_queries) != (QUERY_WEIGHTS in other):
        parser.error(
            "expected two models that both weigh the words of questions, or neither, found that only"
            f" {given.model if weighted else given.further} does"
        )
    own = {name: value.clone() for name, value in model.state_dict().items()}
    kept = [model.tokenizer.token_to_id(term) for term in given.keep]
    if None in kept:
        parser.error(f"expected wordpieces of the model, found {given.keep[kept.index(None)]!r}")
    averaged = {
        name: torch.lerp(value, other[name].float(), given.share) if value.is_floating_point() else value
        for name, value in own.items()
    }
    if kept:
        averaged["term_embeddings"][kept] = own["term_embeddings"][kept]
    model.load_state_dict(averaged)
    model.save_pretrained(given.output, int8=True)


if __name__ == "__main__":
    main()
