"""Make an index hold exactly the passages of a corpus, and encode only what changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparta.base.batches import bounded_batches
from sparta.base.errors import InputError, MostOfIndexError
from sparta.base.files import STANDARD_INPUT
from sparta.base.remedies import Option, remedy
from sparta.data.languages import DEFAULT_LANGUAGE
from sparta.data.readers.corpus_reader import CorpusReader, describe_skips
from sparta.data.readers.record_reader import PartOfCorpus
from sparta.data.sentences import split_units
from sparta.data.units import is_cut, passage_of
from sparta.index.channels import begun_channels, split_channels
from sparta.index.folder import IndexFolder, no_passages
from sparta.index.generation import codec_name
from sparta.index.inputs.open_encoder import OpenEncoder
from sparta.index.inputs.options import IndexOptions, fields_of_index, options_to_grow
from sparta.index.pipeline import build_index, delete_from_index, update_channels
from sparta.index.plan import check_form, check_named_model, has_commit
from sparta.lucene.bridge import ImpactSearcher
from sparta.shards.store import stored_record

_UNITS_PER_LOOK = 500


@dataclass(frozen=True, slots=True)
class SyncReport:
    """The differences between a corpus and an index, by passage id, and what was done.

    `added` and `updated` name passages of the corpus, `deleted` passages that only the index had. If the
    corpus loses a changed passage before it is encoded, only `deleted` may name it. `unchanged` counts the
    other passages. `behind` names the channels that failed to update. `dry_run` says that the index was not
    changed. `source` holds the counts of the corpus's records in the last of its readings; the index keeps no
    passage of a skipped record.
    """

    path: Path
    added: tuple[str, ...]
    updated: tuple[str, ...]
    deleted: tuple[str, ...]
    unchanged: int
    behind: tuple[str, ...] = ()
    dry_run: bool = False
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def deletes_most(self) -> bool:
        """Whether more than half of the passages of the index are missing from the corpus."""
        return len(self.deleted) > len(self.updated) + self.unchanged

    @property
    def skipped(self) -> str:
        """Describe how many records were skipped, why, and the first skip; empty if no record was skipped."""
        return describe_skips(self.source)


def sync_index(
    path: str | Path,
    corpus: str | Path,
    options: IndexOptions | None = None,
    *,
    dry_run: bool = False,
    yes: bool = False,
    progress: bool | None = False,
    encoder: OpenEncoder | None = None,
) -> SyncReport:
    """Add, update and delete passages, so that an index holds exactly the passages of a file or folder.

    A passage is unchanged if its stored record is the same, so file times do not matter. Additions and
    updates come first, then deletions. After a kill, also of the first build, or if a channel failed to
    update, the same call does what is missing.

    :param options: a channel that they name and the index lacks, such as `dense`, is added
    :param dry_run: only report the differences, also if more than half of the index would be deleted
    :param yes: whether more than half of the index may be deleted
    :param encoder: keeps the model open for later calls; None means the model is opened for this call
    :raises InputError: the corpus has no passages or is standard input, or more than half of the index would
        be deleted. Then nothing is deleted, and nothing else changes unless the corpus just lost passages.
    """
    if str(corpus) == STANDARD_INPUT or not isinstance(corpus, str | Path):
        raise InputError("the corpus must be a file or a folder, because it is read twice")
    folder = IndexFolder(path)
    requested = _with_begun_channels(folder, IndexOptions.of(options))
    reader = requested.reader(corpus, fields_of_index(folder))
    if not folder.exists() or not has_commit(folder):
        ids = [passage.passage_id for passage in reader]
        added = SyncReport(folder.path, tuple(ids), (), (), 0, source=reader.counts.for_report())
        if dry_run:
            return replace(added, dry_run=True)
        built = build_index(path, reader, "create", requested, progress=progress, encoder=encoder)
        live = folder.require_live()
        with folder.searcher(live) as lucene:
            indexed = tuple(_stored_counts(lucene, live.unit))
        return replace(added, added=indexed, behind=built.behind, source=reader.counts.for_report())
    chosen = options_to_grow(path, requested)
    if generation := folder.state().searchable:  # perhaps no update will check the options
        form = {name: getattr(chosen, name) for name in generation.form}
        check_form(folder, generation, {"codec": codec_name(chosen.codec or generation.codec), **form})
        check_named_model(folder, generation, requested.model, requested.bits)
    differences = _differences(folder, reader, chosen)
    if dry_run:
        return replace(differences, dry_run=True)
    _check_deletions(differences, str(corpus), yes=yes)
    behind: tuple[str, ...] = ()
    folder.accept_unfinished_build()
    changed = {*differences.added, *differences.updated}
    if changed or not folder.require_live().complete:
        part = PartOfCorpus(reader, changed)
        behind = build_index(path, part, "update", requested, progress=progress, encoder=encoder).behind
        differences = _as_read(differences, part.ids_read)
        _check_deletions(differences, str(corpus), yes=yes)
    if differences.deleted:
        behind = delete_from_index(path, differences.deleted).behind
    if not behind:
        behind = update_channels(path, replace(chosen, channels=requested.channels))
    return replace(differences, behind=behind, source=reader.counts.for_report())


def _with_begun_channels(folder: IndexFolder, options: IndexOptions) -> IndexOptions:
    """Return options that also name the channels that an interrupted first build or sync has begun."""
    generation = folder.state().searchable if folder.exists() else None
    begun = begun_channels(folder.path, generation)
    if generation is None or not begun or options.channels is not None:
        return options
    in_lucene, names = split_channels(generation.channels)
    return replace(options, channels=[str(in_lucene), *names, *begun])


def _differences(folder: IndexFolder, reader: CorpusReader, options: IndexOptions) -> SyncReport:
    """Compare a corpus with the last commit of an index."""
    added: list[str] = []
    updated: list[str] = []
    seen = set[str]()
    unit, language = options.unit or "passage", options.language or DEFAULT_LANGUAGE
    generation = folder.state().searchable
    if generation is None:
        raise no_passages(folder.path)
    with folder.searcher(generation) as lucene:
        passage_id_of = _passage_id_of(unit)
        stored_counts = _stored_counts(lucene, unit)
        groups = itertools.groupby(
            split_units(reader, unit, language), lambda each: passage_id_of(each.passage_id)
        )
        passages = ((passage_id, list(units)) for passage_id, units in groups)
        for some in bounded_batches(passages, lambda item: len(item[1]), _UNITS_PER_LOOK):
            records = _stored_records(lucene, [each.passage_id for _, units in some for each in units])
            for passage_id, units in some:
                seen.add(passage_id)
                if passage_id not in stored_counts:
                    added.append(passage_id)
                elif len(units) != stored_counts[passage_id] or any(
                    records.get(each.passage_id) != stored_record(each) for each in units
                ):
                    updated.append(passage_id)
        deleted = tuple(passage_id for passage_id in stored_counts if passage_id not in seen)
    unchanged = len(seen) - len(added) - len(updated)
    counts = reader.counts.for_report()
    return SyncReport(folder.path, tuple(added), tuple(updated), deleted, unchanged, source=counts)


def _as_read(differences: SyncReport, ids_read: Container[str]) -> SyncReport:
    """Return the differences without changed passages that the corpus lost before they were encoded."""
    return replace(
        differences,
        added=tuple(passage_id for passage_id in differences.added if passage_id in ids_read),
        updated=tuple(passage_id for passage_id in differences.updated if passage_id in ids_read),
        deleted=(*differences.deleted, *(each for each in differences.updated if each not in ids_read)),
    )


def _passage_id_of(unit: str) -> Callable[[str], str]:
    """Return the function from the id of a unit to the id of its passage."""
    return passage_of if is_cut(unit) else str


def _stored_counts(lucene: ImpactSearcher, unit: str) -> Counter[str]:
    """Return the number of units of each stored passage, by passage id."""
    return Counter(map(_passage_id_of(unit), lucene.ids(lucene.live())))


def _stored_records(lucene: ImpactSearcher, unit_ids: list[str]) -> dict[str, str]:
    """Return the stored JSON of units by id; units that the index lacks are left out."""
    docids = lucene.docids(unit_ids)
    stored = [(unit_id, docid) for unit_id, docid in zip(unit_ids, docids, strict=True) if docid >= 0]
    raws = lucene.raws([docid for _, docid in stored])
    return dict(zip((unit_id for unit_id, _ in stored), raws, strict=True))


def _check_deletions(differences: SyncReport, corpus: str, *, yes: bool) -> None:
    """Raise if more than half of the passages would be deleted, as with a folder that is not mounted."""
    if differences.deletes_most and not yes:
        before = len(differences.updated) + len(differences.deleted) + differences.unchanged
        raise MostOfIndexError(
            f"{len(differences.deleted):,} of the {before:,} passages of the index are missing from the"
            " corpus, which is more than half",
            where=corpus,
            remedy=remedy("check that the folder is complete; to delete them, add {}", Option("yes", True)),
        )
