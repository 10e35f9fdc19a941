"""The tables of TASER: retrieval in and out of domain, variants, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid.replications.tables.experiment import Experiment
from hybrid.replications.tables.table import Figures, PaperTable, rows_of

BERT_BASE = {"model_type": "bert"}
"""BERT-base: the defaults of BERT's configuration, with 12 layers of width 768."""
ROBERTA_LARGE = {
    "model_type": "roberta",
    "vocab_size": 50_265,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}


def parameters(experiment: Experiment) -> None:
    """Count table A3: the parameters of each model's encoders, without poolers and without data."""

    def measure() -> Mapping[str, Figures]:
        return {name: {"million parameters": count / 1e6} for name, count in parameter_counts().items()}

    names = ["DPR", "coCondenser", "xMoCo", "SPAR-Wiki; SPAR-PAQ", "DPR-PAQ", "TASER"]
    experiment.measure(names, "encoders of the published sizes", measure)


def parameter_counts() -> dict[str, int]:
    """Return the number of parameters of each model of table A3, counted in encoders without values."""
    from dense.models.experts import specialize

    bert, taser, large = _encoder(BERT_BASE), _encoder(BERT_BASE), _encoder(ROBERTA_LARGE)
    specialize(taser, 2, "det", 3)
    two = 2 * _count(bert)
    return {
        "DPR": two,
        "coCondenser": two,
        "xMoCo": two,
        "SPAR-Wiki; SPAR-PAQ": 2 * two,  # two bi-encoders, one of which imitates a lexical model
        "DPR-PAQ": 2 * _count(large),
        "TASER": _count(taser),
    }


def _encoder(config: Mapping[str, Any]) -> Any:
    """Return an encoder whose parameters have shapes but no values."""
    import torch
    from transformers import AutoConfig, AutoModel

    kind = dict(config)
    with torch.device("meta"):
        settings = AutoConfig.for_model(kind.pop("model_type"), **kind)
        return AutoModel.from_config(settings, add_pooling_layer=False)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


TABLES = (
    PaperTable(
        name="taser-a3",
        number="A3",
        title="Numbers of parameters",
        figures=rows_of(
            "million parameters",
            {
                "DPR": (218.0,),
                "coCondenser": (218.0,),
                "xMoCo": (218.0,),
                "SPAR-Wiki; SPAR-PAQ": (436.0,),
                "DPR-PAQ": (710.0,),
                "TASER": (128.0,),
            },
        ),
        measure=parameters,
    ),
)
