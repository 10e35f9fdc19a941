"""Reading Python objects as records: tables, data sets, and documents of other frameworks.

The objects are recognized by their attributes, so none of their packages is imported.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, MappingView, Set, Sized
from functools import partial
from typing import Any

from sparta.data.files import NOT_PASSAGES

logger = logging.getLogger("sparta.data")


def rows_of(corpus: Any, text_columns: Collection[str] = ()) -> Any:
    """Return the records of a collection.

    Tables of pandas, polars and pyarrow give a dictionary per row, a `DatasetDict` the rows of its splits.
    Splits of queries and judgments are left out, with a warning. Any other iterable is returned unchanged.
    A `LazyFrame` of polars is collected in memory.

    :param text_columns: columns whose missing cells in a table of pandas are None, as in the other tables;
        missing cells of its other columns are left out
    """
    if table := _table(corpus, text_columns):
        _, rows = table
        return rows()
    if splits := _splits(corpus):
        if ignored := [str(name) for name in corpus if name not in splits]:
            logger.warning(
                "the data set: reading %s; not reading %s (queries or judgments)",
                *(", ".join(map(str, splits)), ", ".join(ignored)),
            )
        return itertools.chain.from_iterable(splits.values())
    return corpus


def columns_of(corpus: Any) -> list[str]:
    """Return the names of the columns of a table in memory; empty for other collections."""
    table = _table(corpus)
    return table[0] if table else []


def _table(
    corpus: Any, text_columns: Collection[str] = ()
) -> tuple[list[str], Callable[[], Iterator[dict[str, Any]]]] | None:
    """Return the columns of a table of pandas, polars or pyarrow, and a function that returns its rows."""
    if hasattr(corpus, "collect_schema") and hasattr(corpus, "collect"):  # a LazyFrame of polars
        return list(corpus.collect_schema().names()), lambda: corpus.collect().iter_rows(named=True)
    if hasattr(corpus, "iter_rows") and hasattr(corpus, "columns"):  # polars
        return list(corpus.columns), partial(corpus.iter_rows, named=True)
    if hasattr(corpus, "to_batches") and hasattr(corpus, "schema"):  # pyarrow
        return list(corpus.schema.names), partial(_arrow_rows, corpus)
    if hasattr(corpus, "itertuples") and hasattr(corpus, "columns"):  # pandas
        return [*map(str, (*_named_levels(corpus), *corpus.columns))], partial(
            _pandas_rows, corpus, text_columns
        )
    return None


def _splits(corpus: Any) -> dict[Any, Any]:
    """Return the splits of a `DatasetDict` by name; empty for other objects.

    Splits of queries and judgments are left out, unless the data set has only such splits.
    """
    if not isinstance(corpus, Mapping) or not all(hasattr(split, "features") for split in corpus.values()):
        return {}
    splits = {name: split for name, split in corpus.items() if not NOT_PASSAGES.match(str(name))}
    return splits or dict(corpus)


def row_count(corpus: Any) -> int | None:
    """Return the number of records of a collection; None if it is unknown."""
    if splits := _splits(corpus):
        counts = [row_count(split) for split in splits.values()]
        return None if None in counts else sum(count or 0 for count in counts)
    with contextlib.suppress(TypeError):  # tqdm raises it for an iterator without a known length
        return len(corpus) if isinstance(corpus, Sized) else None
    return None


def is_rereadable(corpus: Any) -> bool:
    """Return whether a collection gives its records again in a second iteration, judged by its type.

    A known length is no proof: a progress bar around an iterator has the length that its caller names.
    """
    if splits := _splits(corpus):
        return all(map(is_rereadable, splits.values()))
    has_places = isinstance(corpus, Sized) and hasattr(corpus, "__getitem__")  # a progress bar has none
    return has_places or isinstance(corpus, Set | MappingView) or _table(corpus) is not None


def is_collection(corpus: Any) -> bool:
    """Return whether a mapping is a collection of records, as a `DatasetDict` is, and not one record."""
    return _table(corpus) is not None or bool(_splits(corpus))


def _arrow_rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches():
        yield from batch.to_pylist()


def _pandas_rows(frame: Any, text_columns: Collection[str]) -> Iterator[dict[str, Any]]:
    if levels := _named_levels(frame):
        frame = frame.reset_index(level=levels)
    names = [str(name) for name in frame.columns]
    for row in frame.itertuples(index=False, name=None):
        cells = {name: None if _is_missing(value) else value for name, value in zip(names, row, strict=True)}
        yield {name: value for name, value in cells.items() if value is not None or name in text_columns}


def _named_levels(frame: Any) -> list[Any]:
    """Return the names of the index of a table of pandas, which are columns to the user (`set_index`)."""
    levels = getattr(getattr(frame, "index", None), "names", ())
    return [name for name in levels if name is not None and name not in frame.columns]


def _is_missing(value: Any) -> bool:
    """Return whether pandas means that the value is missing: NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def record_of(row: Any) -> Any:
    """Return a row or a document as a dictionary; other objects are returned unchanged.

    Documents of LangChain give `page_content` as the text, nodes and documents of LlamaIndex their content,
    each with its id and its metadata.
    """
    if isinstance(row, str):
        return row
    if hasattr(row, "page_content") and hasattr(row, "metadata"):  # LangChain
        return _document(getattr(row, "id", None), row.page_content, row.metadata)
    if hasattr(row, "get_content") and hasattr(row, "node_id"):  # LlamaIndex
        return _document(row.node_id, row.get_content(), row.metadata)
    if not isinstance(row, Mapping) and hasattr(row, "keys") and hasattr(row, "__getitem__"):  # sqlite3.Row
        return {name: row[name] for name in row.keys()}  # noqa: SIM118
    return row


def _document(document_id: str | None, text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    named = {} if document_id is None else {"id": document_id}
    return {**metadata, **named, "text": text}
