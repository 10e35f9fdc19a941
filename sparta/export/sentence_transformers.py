"""Exporting a SPARTA model as a sentence-transformers `SparseEncoder` without a query network."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer

from sparta.base.errors import ModelError
from sparta.base.extras import optional_packages
from sparta.base.files import check_new_folder, make_folder, storage_errors
from sparta.base.remedies import Command
from sparta.models.load import load_module
from sparta.models.sparse import SparseEncoder
from sparta.models.sparta import SpartaModel
from sparta.neural.backbones import encoder_config, without_pooler

if TYPE_CHECKING:
    from sparta.export.modeling_sparta import SpartaDocument, SpartaQuery

logger = logging.getLogger(__name__)
CODE = Path(__file__).with_name("modeling_sparta.py")
CARD = """---
library_name: sentence-transformers
tags: [sentence-transformers, sparse-encoder, sparta]
---

# {name}

A SPARTA model, exported for sentence-transformers. Documents are read by a transformer; questions are
looked up in a table, without a network. `modeling_sparta.py` does both, hence `trust_remote_code`.

```python
from sentence_transformers import SparseEncoder

model = SparseEncoder("{folder}", trust_remote_code=True)
documents = model.encode_document(["Bill Gates founded Microsoft with Paul Allen in 1975."])
print(model.similarity(model.encode_query(["who founded microsoft"]), documents))
```

A title stands before its text, with a space between them. Titled passages of several windows get slightly
other weights than in sparta: only their first window has the title.
"""


@optional_packages()
def export_sentence_transformers(model: SparseEncoder | str | Path | None, output: Path) -> Path:
    """Write a SPARTA model to a folder that `SparseEncoder(folder, trust_remote_code=True)` opens.

    The exported model gives the same weights as `encode_document` in float32 and `encode_query`, except for
    titled passages of several windows: only their first window has the title. The folder contains the code
    that reads it. The folder appears only when it is complete.

    :param model: a model, or an argument of `load_module`
    :raises ModelError: the model is not a SPARTA model.
    :raises IndexStateError: the folder already holds files.
    """
    check_new_folder(output)
    from sentence_transformers import SparseEncoder as SentenceTransformersEncoder

    from sparta.export.modeling_sparta import SpartaRouter

    sparta_model = model if isinstance(model, SparseEncoder) else load_module(model)
    if not isinstance(sparta_model, SpartaModel):
        raise ModelError(
            f"the model {sparta_model.name!r} is not a SPARTA model; sentence-transformers can open it",
            remedy="name a model folder that sparta train wrote",
        )
    if sparta_model.lexical:
        logger.warning(
            "sentence-transformers cannot hold the model's lexical terms, so words and pairs are left out."
            " To search with them, use sparta, or export an index: %s",
            Command.of("sparta export").for_command_line(),
        )
    router = SpartaRouter.for_query_document([_query_side(sparta_model)], [_document_side(sparta_model)])
    make_folder(output.absolute().parent)
    with storage_errors(output), tempfile.TemporaryDirectory(dir=output.absolute().parent) as temporary:
        work = Path(temporary) / "model"
        SentenceTransformersEncoder(modules=[router], similarity_fn_name="dot", device="cpu").save(
            str(work), create_model_card=False
        )
        shutil.copyfile(CODE, work / CODE.name)
        (work / "README.md").write_text(
            CARD.format(name=sparta_model.name, folder=output.name), encoding="utf-8"
        )
        modules = work / "modules.json"
        modules.write_text(
            modules.read_text(encoding="utf-8").replace("sparta.export.", ""), encoding="utf-8"
        )
        work.replace(output)
    return output


def _query_side(model: SpartaModel) -> SpartaQuery:
    from sparta.export.modeling_sparta import SpartaQuery

    query_tokenizer, excluded = model.query_tokenizer(), model.excluded_terms()
    query = SpartaQuery(_tokenizer(model), len(excluded), once=query_tokenizer.weights is not None)
    if query_tokenizer.weights is not None:
        weights = torch.from_numpy(query_tokenizer.weights).float() * query_tokenizer.step
        query.weight.data[: len(weights)] = weights
    query.weight.data[excluded] = 0
    return query


def _document_side(model: SpartaModel) -> SpartaDocument:
    from sparta.export.modeling_sparta import SpartaDocument

    config, excluded, gains = model.config, model.excluded_terms(), model.lexical_gains()
    layout, encoder = config.layout, encoder_config(model.encoder)
    document = SpartaDocument(
        _tokenizer(model),
        len(excluded),
        encoder=encoder,
        arguments=without_pooler(encoder["model_type"]),
        max_length=layout.max_length,
        overlap=layout.overlap,
        segment=0 if layout.share_context else layout.answer_segment,
        pool_special=config.pool_special,
        log_count=config.log_count,
        lexical=asdict(config.lexical) if config.lexical else None,
    )
    state = {f"model.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    state |= {"terms": model.term_matrix(), "scale": model.scale, "bias": model.bias, "allowed": ~excluded}
    state["gains"] = document.gains if gains is None else gains
    document.load_state_dict(state)
    return document.eval()


def _tokenizer(model: SpartaModel) -> Tokenizer:
    return Tokenizer.from_str(model.tokenizer.to_str())
