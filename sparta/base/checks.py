"""Checks of arguments, and of the JSON files and tokenizers of model folders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError, ModelError
from sparta.base.files import raise_if_unreadable
from sparta.base.remedies import Option, Remedy, remedy

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from sparta.base.records import ScoredPassage

MOST_THREADS = 1024
"""The highest number of indexing threads, as in `ImpactWriter.java`."""
_MAX_GAP_FACTOR, _GAP_ALLOWANCE = 2, 1 << 16  # the numbers of a vocabulary may have gaps
_LISTS = (
    "pass two lists: list(queries.values()), list(queries) for a dictionary,"
    " [query], [query_id] for one query"
)


def whole(
    name: str, value: Any, least: int = 1, remedy: str | Remedy = "", *, most: int | None = None
) -> int:
    """Return `value` as an int; NumPy integers are accepted.

    :param name: the argument's name, for the error message
    :param least: the smallest accepted value
    :param most: the largest accepted value
    :raises InputError: `value` is not an integer, or not in this range.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, found {value!r}", remedy=remedy)
    if value < least:
        raise InputError(f"{name} must be at least {least}, found {value}", remedy=remedy)
    if most is not None and int(value) > most:
        raise InputError(f"{name} must be at most {most}, found {value}", remedy=remedy)
    return int(value)


def parse_numbers(text: str, option: str, least: int = 1) -> tuple[int, ...]:
    """Parse comma-separated whole numbers such as `20,50,100`.

    :param option: the option that holds the text, for the error message
    :param least: the smallest accepted number
    :raises InputError: an item is not a whole number, or is below `least`.
    """
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and len(item) < 10 and int(item) >= least for item in items):
        raise InputError(
            f"expected comma-separated whole numbers from {least} to 999,999,999, found {text!r}",
            remedy=remedy(
                "write {}, or {} to compare numbers", Option(option, "100"), Option(option, "20,50,100")
            ),
        )
    return tuple(map(int, items))


def limit(name: str, value: Any) -> int | None:
    """Return an upper limit as an int of at least 1; None means no limit.

    :raises InputError: `value` is not an integer, or is below 1.
    """
    return None if value is None else whole(name, value)


def is_number(value: Any) -> bool:
    """Return whether `value` is a number, including NumPy numbers; booleans do not count as numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)


def numpy_kind(value: Any) -> str:
    """Return the kind of NumPy's arrays and scalars, such as `b` (booleans) and `M` (times); else nothing."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def plain_number(value: Any) -> int | float:
    """Convert a NumPy number to a Python int or float.

    :raises TypeError: `value` is not a number.
    """
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"Object of type {_kind(value)} is not JSON serializable")


def seconds(name: str, value: Any) -> float:
    """Return `value` as a float of at least 0; infinity is accepted.

    :param name: the argument's name, for the error message
    :raises InputError: `value` is not a number, or is below 0.
    """
    if not is_number(value) or not value >= 0:
        raise InputError(f"{name} must be a number of seconds of at least 0, found {value!r}")
    return float(value)


def fraction(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1.

    :param name: the argument's name, for the error message
    :raises InputError: `value` is not a number from 0 to 1.
    """
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(f"expected {name} from 0 to 1, found {value!r}")
    return float(value)


def path_of(value: Any, description: str) -> Path:
    """Return `value`, a string or a path, as a Path.

    :param description: a description of the file or folder at the path, for the error message
    :raises InputError: `value` is neither a string nor a Path.
    """
    if not isinstance(value, str | Path):
        raise InputError(f"expected the path of {description}, found {_kind(value)}")
    return Path(value)


def paths_of(values: Any, description: str) -> list[Path]:
    """Return a list of Paths from an iterable of strings or Paths.

    :raises InputError: `values` is a single path, or holds an element that is not a path.
    """
    return [path_of(path, description) for path in list_of(values, f"paths of {description}")]


def list_of(values: Any, description: str, remedy: str | Remedy = "") -> list[Any]:
    """Return the elements of an iterable as a list.

    :param description: a description of the elements, for the error message
    :raises InputError: `values` is a string, a mapping or not iterable.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InputError(f"expected a list of {description}, found {_kind(values)}", remedy=remedy)
    return list(values)


def query_of(value: Any) -> str:
    """Return `value`, which must be a single query.

    :raises InputError: `value` is not a string, or cannot be encoded as UTF-8.
    """
    if not isinstance(value, str):
        raise InputError(
            f"the query must be a string, found {_kind(value)}",
            remedy="search a list of queries with batch_search",
        )
    return _unicode(value)


def queries_of(queries: Any, query_ids: Any = None) -> tuple[list[str], list[str]]:
    """Return the queries and their ids as two lists of equal length.

    Results are stored under the query ids. If `query_ids` is None, the ids are the numbers "0", "1" and so
    on.

    :raises InputError: a query is not a string, the number of ids differs, or an id is repeated.
    """
    texts = list_of(queries, "queries", _LISTS)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"queries must be strings, found {_kind(text)} at position {position}")
        _unicode(text)
    if query_ids is None:
        return texts, [str(index) for index in range(len(texts))]
    ids = list_of(query_ids, "query ids", _LISTS)
    if len(texts) != len(ids):
        raise InputError(f"every query needs one query id, found {len(ids)} ids and {len(texts)} queries")
    for position, query_id in enumerate(ids):
        if not isinstance(query_id, str | Integral):
            raise InputError(f"query ids must be strings, found {_kind(query_id)} at position {position}")
    repeated = [query_id for query_id, count in Counter(ids).items() if count > 1]
    if repeated:
        raise InputError(
            f"the query id {repeated[0]!r} appears more than once",
            remedy="give every query a different id",
        )
    return texts, ids


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a model folder.

    :raises ModelError: the file is missing or is not a JSON object.
    :raises StorageError: the file cannot be read, whatever its content.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise_if_unreadable(path, error)
        raise ModelError(
            f"expected a JSON object, could not read it: {error}",
            where=str(path),
            remedy="check the path of the model, or save the model again",
        ) from error
    if not isinstance(value, dict):
        raise ModelError(f"expected a JSON object, found {type(value).__name__}", where=str(path))
    return value


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Return the largest wordpiece number plus 1. A vocabulary with gaps has fewer wordpieces than that.

    Reading the whole vocabulary takes about 15 ms.
    """
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def check_vocabulary(tokenizer: Tokenizer, where: str | Path) -> int:
    """Check that the tokenizer's largest wordpiece number fits the size of its vocabulary.

    Returns the same as `vocabulary_size`. Reading the whole vocabulary takes about 20 ms.

    :param where: the tokenizer's file or folder, for the error message
    :raises ModelError: the largest number is far above the vocabulary size; the error names the wordpiece.
    """
    size = tokenizer.get_vocab_size()
    wordpiece, largest_number = max(
        tokenizer.get_vocab().items(), key=lambda entry: entry[1], default=("", 0)
    )
    if largest_number >= _MAX_GAP_FACTOR * size + _GAP_ALLOWANCE:
        named = f"{wordpiece[:20]!a} has the number {largest_number:,}"
        raise ModelError(
            f"the tokenizer has {size:,} wordpieces, but the wordpiece {named}",
            where=str(where),
            remedy="copy the model folder with its complete tokenizer again",
        )
    return largest_number + 1


def not_unicode(error: UnicodeEncodeError) -> InputError:
    """Return the error for a string that UTF-8 cannot encode because it contains a lone surrogate."""
    surrogate = error.object[error.start : error.end]
    return InputError(
        f"the text is not valid Unicode: it contains the lone surrogate {surrogate!a}",
        remedy="repair the encoding of the input",
    )


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error
    return text


def _kind(value: Any) -> str:
    return type(value).__name__


def check_passages(ranking: Sequence[ScoredPassage], where: str) -> None:
    """Raise InputError if a ranking has the same passage twice.

    :param where: the name of the ranking, for the error message
    """
    if len({passage.passage_id for passage in ranking}) < len(ranking):
        raise InputError(
            "a ranking has the same passage twice",
            where=where,
            remedy="remove the repeated passage from the ranking",
        )
