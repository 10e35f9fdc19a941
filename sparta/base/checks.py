"""Checks of arguments: queries and their ids, counts, numbers and paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparta.base.errors import InputError, ModelError
from sparta.base.remedies import Remedy

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_GAPS, _FEW_TERMS = 2, 1 << 16  # numbers of a vocabulary may have gaps
_LISTS = "give lists: run(list(q.values()), list(q)) of a dictionary q, run([text], [id]) of one query"


def whole(name: str, value: Any, least: int = 1, remedy: str | Remedy = "") -> int:
    """Return a count; numpy's will do.

    :raises InputError: no whole number, or one below `least`.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, found {value!r}", remedy=remedy)
    if value < least:
        raise InputError(f"{name} must be at least {least}, found {value}", remedy=remedy)
    return int(value)


def limit(name: str, value: Any) -> int | None:
    """Return the highest count, 1 or more; None means all."""
    return None if value is None else whole(name, value)


def is_number(value: Any) -> bool:
    """Whether this is a number, also one of numpy's; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def plain_number(value: Any) -> int | float:
    """Return a number of Python for one of numpy's.

    :raises TypeError: no number.
    """
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"Object of type {_kind(value)} is not JSON serializable")


def share(name: str, value: Any) -> float:
    """Return a number from 0 to 1.

    :raises InputError: anything else.
    """
    if not is_number(value) or not 0 <= value <= 1:
        raise InputError(f"expected {name} from 0 to 1, found {value!r}")
    return float(value)


def path_of(value: Any, what: str) -> Path:
    """Return the path that a text or a path names.

    :param what: what it leads to, for the message
    :raises InputError: something else.
    """
    if not isinstance(value, str | Path):
        raise InputError(f"expected the path of {what}, found {_kind(value)}")
    return Path(value)


def paths_of(value: Any, what: str) -> list[Path]:
    """Return several paths.

    :raises InputError: one alone, or something else.
    """
    return [path_of(path, what) for path in several(value, f"paths of {what}")]


def several(value: Any, what: str, remedy: str | Remedy = "") -> list[Any]:
    """Return a list of what a list, a tuple or another iterable holds.

    :raises InputError: a text, a dictionary, or nothing to iterate over.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"expected a list of {what}, found {_kind(value)}", remedy=remedy)
    return list(value)


def query_of(value: Any) -> str:
    """Return one query.

    :raises InputError: no text, or one that UTF-8 cannot hold.
    """
    if not isinstance(value, str):
        raise InputError(
            f"expected one query, a text, found {_kind(value)}", remedy="batch_search takes a list of queries"
        )
    return _unicode(value)


def queries_of(queries: Any, query_ids: Any = None) -> tuple[list[str], list[str]]:
    """Return queries and their ids, by which results are kept; None as ids is the queries' numbers from 0.

    :raises InputError: no texts, or ids that are not one for each query, or not distinct.
    """
    texts = several(queries, "queries", _LISTS)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected queries as texts, found {_kind(text)} at place {place}")
        _unicode(text)
    if query_ids is None:
        return texts, [str(number) for number in range(len(texts))]
    ids = several(query_ids, "query ids", _LISTS)
    if len(texts) != len(ids):
        raise InputError(f"expected as many query ids as queries, found {len(ids)} and {len(texts)}")
    for place, query_id in enumerate(ids):
        if not isinstance(query_id, str | Integral):
            raise InputError(f"expected query ids as texts, found {_kind(query_id)} at place {place}")
    repeated = [query_id for query_id, n in Counter(ids).items() if n > 1]
    if repeated:
        raise InputError(
            f"expected distinct query ids, found {repeated[0]!r} more than once",
            remedy="give every query an id of its own",
        )
    return texts, ids


def check_vocabulary(tokenizer: Tokenizer, where: str | Path) -> None:
    """Refuse a tokenizer whose highest number is far above the count of its wordpieces.

    :raises ModelError: it names the wordpiece; to look at all of a vocabulary takes about 20 ms.
    """
    size = tokenizer.get_vocab_size()
    piece, number = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1], default=("", 0))
    if number >= _MOST_GAPS * size + _FEW_TERMS:
        raise ModelError(
            f"expected {size:,} wordpieces numbered from 0, found the number {number:,} of {piece[:20]!a}",
            where=str(where),
            remedy="copy the tokenizer again, whole",
        )


def not_unicode(error: UnicodeEncodeError) -> InputError:
    """Say that a text has half a character, which UTF-8 cannot hold."""
    return InputError(
        f"text that is not valid Unicode (a lone surrogate): {error.object[error.start : error.end]!a}",
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
