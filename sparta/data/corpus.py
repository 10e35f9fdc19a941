"""Opening a corpus: the reader of a file, a folder, a dataset or a list of records.

JSONL files have one object per line, JSON files a list of objects. TSV and CSV files have a header (`id`,
`text`, `title`) and quoting as Python's csv module writes it; TSV may have no header and the two columns id
and text. The rows of a query to an SQLite database, of Parquet files and of Arrow files are records, and so
are the documents of a dataset of ir_datasets. A page of KILT's knowledge source is split into passages of
100 words. A table row is a passage. The suffix decides the format; other names are decided by the first line.
Blank lines are ignored and not counted. A text, Markdown, HTML or PDF file is one passage, and in a folder
without records each of these files is one, including those in subfolders. All files may be compressed by
gzip, bzip2 or zstd, except databases and Parquet and Arrow files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sparta.base.errors import InputError
from sparta.base.records import Passage
from sparta.data.formats.fields import USUAL_FIELDS, Fields
from sparta.data.formats.irds import is_irds
from sparta.data.formats.objects import is_collection
from sparta.data.formats.reading import RECORDS
from sparta.data.formats.sqlite import no_database
from sparta.data.parsing import TEXT_FIELDS, BadRecordError
from sparta.data.readers.corpus_reader import CorpusReader
from sparta.data.readers.file_reader import FileReader
from sparta.data.readers.irds_reader import IrdsReader
from sparta.data.readers.record_reader import Record, RecordReader

type Corpus = str | Path | Iterable[Record] | CorpusReader
"""A file, a folder, `-` for standard input, `irds:` with the name of a dataset, or records in memory."""


def open_corpus(
    corpus: Corpus,
    *,
    skip_invalid: bool = False,
    fields: Fields = USUAL_FIELDS,
    query: str | None = None,
) -> CorpusReader:
    """Return the reader of a corpus.

    Texts in memory without an id are numbered from 0 in each list. Tables of pandas, polars and pyarrow, data
    sets of Hugging Face, rows of sqlite3, and documents of LangChain and LlamaIndex are collections of
    records, too.

    :param fields: the names of the fields that hold id, text and title
    :param query: the SQL query whose rows are the records of an SQLite database
    :raises InputError: the file does not exist, or `corpus` is a single record instead of a list.
    """
    if isinstance(corpus, CorpusReader):
        return corpus
    if isinstance(corpus, str | Path) and is_irds(corpus):
        return IrdsReader(str(corpus), skip_invalid=skip_invalid, fields=fields, query=query)
    if isinstance(corpus, str | Path):
        return FileReader(corpus, skip_invalid=skip_invalid, fields=fields, query=query)
    if isinstance(corpus, Passage) or (isinstance(corpus, Mapping) and not is_collection(corpus)):
        raise _not_a_list(corpus, fields)
    if query is not None:
        raise no_database(RECORDS)
    return RecordReader(corpus, skip_invalid=skip_invalid, fields=fields)


def _not_a_list(corpus: Passage | Mapping[str, Any], fields: Fields) -> InputError:
    """Return the error for a single record, or for a dictionary of passages by id, as in BEIR."""
    record = corpus if isinstance(corpus, Mapping) else {}
    values, text_fields = list(record.values()), {*(fields.text or TEXT_FIELDS)}
    is_of_passages = values and all(isinstance(value, Mapping) for value in values)
    if is_of_passages and any(text_fields & {*value} for value in values):
        return InputError(
            "the corpus is a dictionary of passages by id, not a list of records",
            remedy='pass a list: [{**passage, "id": id} for id, passage in corpus.items()]',
        )
    advice = "put the record into a list: [record]"
    if values and not text_fields & {*record}:
        advice += '; a dictionary of texts by id: [{"id": id, "text": text} for id, text in corpus.items()]'
    return InputError("the corpus is a single record, not a list of records", remedy=advice)


def passages_in_file(path: str | Path) -> Iterator[Passage]:
    """Yield the passages of a file, for a caller that has no options for fields and invalid records.

    :raises BadRecordError: a record is invalid.
    """
    try:
        yield from FileReader(path)
    except BadRecordError as error:
        error.remedy = "correct this record; the text must be in a usual field, such as text"
        raise
