"""Reading documents, queries and judgments of ir_datasets by a name, such as `irds:beir/scifact`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError, SpartaError
from sparta.base.extras import optional_packages
from sparta.base.records import Query

_PREFIX = "irds:"
_CATALOG = "https://ir-datasets.com"
_KINDS = {"docs": "documents", "queries": "queries", "qrels": "judgments"}
_MOST_NAMES = 5


def is_irds(source: str | Path) -> bool:
    """Return whether a source names a dataset of ir_datasets."""
    return str(source).startswith(_PREFIX)


def check_irds(source: str | Path, *kinds: str) -> None:
    """Check that a dataset is known and has data of these kinds. Nothing is downloaded.

    :param kinds: `docs`, `queries` or `qrels`
    :raises InputError: the dataset is unknown, or lacks a kind of data.
    :raises MissingPackageError: the package ir_datasets is not installed.
    """
    dataset = _dataset(source)
    if missing := [_KINDS[kind] for kind in kinds if not getattr(dataset, f"has_{kind}")()]:
        import ir_datasets

        name = irds_name(source)
        parts = [each for each in ir_datasets.registry if each.startswith(f"{name}/")]
        complete = [part for part in parts if all(getattr(_dataset(part), f"has_{kind}")() for kind in kinds)]
        raise InputError(
            f"the dataset has no {' and no '.join(missing)}",
            where=str(source),
            remedy="name a part of it: " + ", ".join(f"{_PREFIX}{part}" for part in complete[:_MOST_NAMES])
            if complete
            else f"look for another dataset at {_CATALOG}",
        )


def document_count(source: str) -> int | None:
    """Return the number of documents as ir_datasets publishes it; None if it is unknown."""
    with _errors(source):
        return (_dataset(source).docs.metadata or {}).get("count")


def irds_documents(source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of a dataset as records, in the dataset's order.

    `doc_id` becomes `id`. A document without a field `text` gets its default text, as ir_datasets defines it.
    Binary fields are left out.

    :raises InputError: a download fails, or a file is damaged.
    """
    with _errors(source):
        for document in _dataset(source).docs_iter():
            fields = document._asdict()
            record = {name: value for name, value in fields.items() if not isinstance(value, bytes)}
            record["id"] = record.pop("doc_id")
            if "text" not in record:
                record["text"] = document.default_text()
            yield record


def irds_queries(source: str | Path) -> list[Query]:
    """Return the queries of a dataset. A query without a field `text` has its default text.

    :raises InputError: a download fails, or a file is damaged.
    """
    with _errors(source):
        queries = list(_dataset(source).queries_iter())
        return [
            Query(query.query_id, query.text if hasattr(query, "text") else query.default_text())
            for query in queries
        ]


def irds_judgments(source: str | Path) -> dict[str, dict[str, int]]:
    """Return {qid: {docid: relevance}}. Of several judgments of a document, the highest counts.

    :raises InputError: a download fails, or a file is damaged.
    """
    qrels: dict[str, dict[str, int]] = {}
    with _errors(source):
        for judgment in _dataset(source).qrels_iter():
            judgments = qrels.setdefault(judgment.query_id, {})
            relevance = max(judgment.relevance, judgments.get(judgment.doc_id, judgment.relevance))
            judgments[judgment.doc_id] = relevance
    return qrels


def irds_name(source: str | Path) -> str:
    """Return the name of a dataset, as ir_datasets knows it."""
    return str(source).removeprefix(_PREFIX)


def _dataset(source: str | Path) -> Any:
    with optional_packages(), _errors(source):
        import ir_datasets

        try:
            return ir_datasets.load(irds_name(source))
        except KeyError:
            message = f"ir_datasets has no dataset {irds_name(source)!r}"
            raise InputError(message, remedy=f"look for the name at {_CATALOG}") from None


@contextmanager
def _errors(source: str | Path) -> Iterator[None]:
    """Convert the errors of ir_datasets, which has a reader for each of its formats.

    :raises InputError: a download fails, or a file is damaged.
    """
    try:
        yield
    except (SpartaError, ImportError):
        raise
    except Exception as error:
        problem = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"ir_datasets cannot read the dataset: {problem}",
            where=str(source),
            remedy="check the network and the folder IR_DATASETS_HOME (~/.ir_datasets), then repeat",
        ) from error
