"""Writes an index as a folder of files that curl loads into OpenSearch."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

from hybrid.opensearch.documents import (
    FORMAT_VERSION,
    Source,
    batches,
    index_body,
    opened_source,
    served_settings,
)
from hybrid.opensearch.query_side import tokenizer_zip, weight_scale
from sparta.base.errors import InputError
from sparta.base.files import atomic_write, check_new_folder, make_folder
from sparta.base.manifest import write_manifest
from sparta.base.remedies import Option, remedy
from sparta.search.searcher import Searcher

KIND = "opensearch-export"
FILE_BYTES = 8 << 20
"""Size of a bulk request that OpenSearch handles well. OpenSearch refuses more than 100 MB."""


def export_opensearch(searcher: Searcher, folder: Path, *, most_bytes: int = FILE_BYTES) -> tuple[int, int]:
    """Write an index as files for OpenSearch; return the numbers of passages and postings.

    Equal indexes give equal bytes. The manifest is written last: a folder without it is incomplete. After an
    error no file remains.

    :param folder: a new or empty folder
    :param most_bytes: largest size of a file of bulk requests; a file with a single passage may be larger
    :raises IndexStateError: the folder holds files, or the index has no impacts
    :raises InputError: the path is a file, or OpenSearch cannot represent the index
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(
            "the output is a file, not a folder",
            where=str(folder),
            remedy=remedy("choose another {}", Option("folder", flag="output")),
        )
    check_new_folder(folder)
    with opened_source(searcher) as source, _whole_or_empty(folder):
        make_folder(folder / "bulk")
        body = index_body(source)
        body["mappings"]["_meta"] = source.meta(complete=True, passages=len(source))
        atomic_write(folder / "index.json", _json(body))
        atomic_write(folder / "served.json", _json(served_settings(1)))
        model = tokenizer_zip(source.side)
        atomic_write(folder / "model.zip", model)
        atomic_write(folder / "model.json", _json(_registration(source, model)))
        files = 0
        for number, batch in enumerate(batches(source.actions(), most_bytes)):
            lines = b"".join(action.lines for action in batch)
            atomic_write(folder / "bulk" / f"{number:06d}.ndjson", lines)
            files += 1
        atomic_write(folder / "README.md", _readme(source, files).encode())
        passages, postings = len(source), int(source.contents.sizes.sum())
        counts = {"passages": passages, "postings": postings, "files": files}
        about = {"kind": KIND, "format_version": FORMAT_VERSION, "counts": counts, **source.form}
        write_manifest(folder, {**about, "identity": source.identity})
    return passages, postings


@contextmanager
def _whole_or_empty(folder: Path) -> Iterator[None]:
    """Restore a folder, which was missing or empty, if the block that fills it raises."""
    is_new = not folder.exists()
    try:
        yield
    except BaseException:
        with suppress(OSError):  # report the block's error, not this one
            for entry in folder.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            if is_new:
                folder.rmdir()
        raise


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _registration(source: Source, model: bytes) -> dict[str, object]:
    """Return the description that ml-commons needs before the upload of the tokenizer model."""
    return {
        "name": source.generation.model["name"],
        "version": source.identity,
        "description": "terms and weights of questions",
        "function_name": "SPARSE_TOKENIZE",
        "model_format": "TORCH_SCRIPT",
        "model_content_size_in_bytes": len(model),
        "model_content_hash_value": hashlib.sha256(model).hexdigest(),
        "total_chunks": 1,
    }


def _readme(source: Source, files: int) -> str:
    weights = source.side.weights
    if weights is None:
        score_note = (
            "The model weighs no terms of a question: each counts 1, also where a question repeats it."
        )
    else:
        scale = weight_scale(dict(enumerate(weights.tolist())))
        score_note = f"A score is 1/{scale} of sparta's." if scale > 1 else "Scores are sparta's."
    if source.side.lexical:
        score_note = (
            "The tokenizer model makes wordpieces only. Searches of sparta also have the index's lexical\n"
            f"terms, words and pairs, so their rankings differ.\n\n{score_note}"
        )
    text = (resources.files("hybrid.opensearch") / "loading.md").read_text("utf-8")
    name = source.generation.model["name"]
    return text % {"passages": f"{len(source):,}", "model": name, "files": files, "counts": score_note}
