"""An index for BM25 alone: nothing is encoded, and impacts can be added later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparta.api import Index
from sparta.base.errors import IndexStateError, InputError, Interrupted, ModelError
from sparta.export.exporters import export_index
from sparta.index.build import IndexReport
from sparta.index.folder import IndexFolder
from sparta.index.inputs.options import IndexOptions
from sparta.index.pipeline import build_index, delete_from_index
from sparta.models.folders.tokenizer import load_tokenizer
from sparta.models.lexical_terms import LexicalTerms, TermSettings

pytestmark = pytest.mark.jvm

TEXTS = {
    "a": "Bill Gates founded Microsoft.",
    "b": "The cat sat on the mat.",
    "c": "Google was founded in 1998.",
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": i, "text": text}) for i, text in TEXTS.items()))
    return path


@pytest.fixture
def options(tiny_model_folder: Path) -> IndexOptions:
    return IndexOptions(channels="bm25", model=str(tiny_model_folder))


@pytest.fixture
def built(tmp_path: Path, corpus: Path, options: IndexOptions) -> Path:
    build_index(tmp_path / "ix", corpus, options=options)
    return tmp_path / "ix"


def add_impacts(built: Path, corpus: Path, options: IndexOptions) -> IndexReport:
    return build_index(built, corpus, options=replace(options, channels=None, resume=True))


def test_nothing_is_encoded(
    tmp_path: Path, corpus: Path, options: IndexOptions, tiny_model_folder: Path
) -> None:
    """The weights of the model are damaged, and not read."""
    model = Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))
    (model / "model.safetensors").write_bytes(b"damaged")
    options = replace(options, model=str(model))
    report = build_index(tmp_path / "ix", corpus, options=options)
    assert (report.documents, report.written["postings"]) == (3, 0)
    with pytest.raises(ModelError, match="weights"):
        build_index(tmp_path / "both", corpus, options=replace(options, channels=None))


def test_it_ranks_as_the_bm25_of_an_index_with_impacts(
    built: Path, tmp_path: Path, corpus: Path, options: IndexOptions
) -> None:
    build_index(tmp_path / "both", corpus, options=replace(options, channels=None))
    with Index(built) as alone, Index(tmp_path / "both") as both:
        assert alone.channels == ["bm25"]
        assert both.channels == ["impact", "bm25"]
        for query in ("who founded google", "cat"):
            assert alone.search(query) == both.search(query, channel="bm25")


def test_an_explanation_is_of_the_channel_that_search_uses(built: Path) -> None:
    with Index(built) as index:
        [hit] = index.search("cat")
        explanation = index.explain("cat", "b")
        assert explanation == index.explain("cat", "b", channel="bm25")
        assert explanation.score == pytest.approx(hit.score)


def test_what_needs_impacts_says_how_to_add_them(built: Path, tmp_path: Path) -> None:
    """Where a caller can name another channel, that is the other remedy."""
    with Index(built) as index:
        for call, names_channel in (
            (lambda: index.search("cat", channel="impact"), True),
            (lambda: index.explain("cat", "b", channel="impact"), True),
            (lambda: index.terms("b"), False),
            (lambda: export_index(index.searcher, "ciff", tmp_path / "x.ciff"), False),
        ):
            with pytest.raises(IndexStateError, match="BM25-only") as caught:
                call()
            add_impacts, *rest = caught.value.remedy.for_command_line().split("; ")
            assert "--resume" in add_impacts
            assert rest == ["or use --channel bm25"] * names_channel
            assert str(caught.value.remedy).endswith("; or use channel='bm25'") == names_channel
    assert not (tmp_path / "x.ciff").exists()


def test_impacts_are_added_by_resume_alone(built: Path, corpus: Path, options: IndexOptions) -> None:
    again = build_index(built, corpus, options=options)
    assert again.unchanged
    with pytest.raises(IndexStateError, match="BM25-only") as caught:
        build_index(built, corpus, options=replace(options, channels=None))
    assert "--resume to add impacts" in caught.value.remedy.for_command_line()
    with Index(built) as before:
        added = add_impacts(built, corpus, options)
        assert added.written["postings"] > 0
        assert before.channels == ["bm25"]  # what was open stays as it was until it is refreshed
        assert before.refresh()
        assert before.channels == ["impact", "bm25"]
        assert before.search("who founded google")
    assert add_impacts(built, corpus, options).unchanged


def test_impacts_may_come_from_another_model(
    built: Path, corpus: Path, options: IndexOptions, make_tiny_model: Callable[..., Any], tmp_path: Path
) -> None:
    """The default model of a later release, say: no posting of the index comes from the earlier one."""
    make_tiny_model(seed=9).save_pretrained(tmp_path / "later")
    later = replace(options, model=str(tmp_path / "later"))
    assert build_index(built, corpus, options=later).unchanged
    assert add_impacts(built, corpus, later).written["postings"] > 0
    assert IndexFolder(built).require_live().model["name"] == later.model
    with pytest.raises(IndexStateError, match="with other options"):
        build_index(built, corpus, options=replace(options, channels=None))


def test_lexical_terms_come_from_the_model_of_the_impacts(
    tmp_path: Path, corpus: Path, lexical_model: Path
) -> None:
    options, later = IndexOptions(channels="bm25", model=str(lexical_model)), tmp_path / "later"
    build_index(tmp_path / "ix", corpus, options=options)
    shutil.copytree(lexical_model, later)
    terms = LexicalTerms(TermSettings(), load_tokenizer(later))
    terms.save(later)
    add_impacts(tmp_path / "ix", corpus, replace(options, model=str(later)))
    assert IndexFolder(tmp_path / "ix").require_live().model["lexical_terms"] == terms.name


def test_added_impacts_may_leave_out_lexical_terms(
    tmp_path: Path, corpus: Path, lexical_model: Path, options: IndexOptions
) -> None:
    """No passage of an index for BM25 alone has any, so the command that adds impacts decides."""
    with_terms = IndexOptions(channels="bm25", model=str(lexical_model))
    build_index(tmp_path / "ix", corpus, options=with_terms)
    add_impacts(tmp_path / "ix", corpus, replace(with_terms, lexical_terms=False))
    assert "lexical_terms" not in IndexFolder(tmp_path / "ix").require_live().model
    build_index(tmp_path / "none", corpus, options=options)
    with pytest.raises(InputError, match="has no lexical terms"):
        add_impacts(tmp_path / "none", corpus, replace(options, lexical_terms=True))


def test_added_impacts_have_the_pruning_and_bits_of_the_index(
    tmp_path: Path, corpus: Path, options: IndexOptions
) -> None:
    stored = {"top_k": 2, "min_weight": 0.01, "bits": 4}
    built = tmp_path / "ix"
    build_index(built, corpus, options=replace(options, **stored))
    interrupt_adding(built, corpus, options)
    assert add_impacts(built, corpus, options).documents == 3
    live = IndexFolder(built).require_live()
    bits = live.model["quantizer"]["bits"]
    assert stored == {"top_k": live.job.top_k, "min_weight": live.job.min_weight, "bits": bits}
    with Index(built) as index:
        assert len(index.terms("c")) <= 2


CHANGES = {
    "append": ("the append of records", ["a", "b", "c", "d"]),
    "update": ("the update of records", ["a", "b", "c", "d"]),
    "delete": ("sparta delete", ["a", "c"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_impacts_are_not_added_to_what_the_corpus_does_not_hold(
    built: Path, corpus: Path, options: IndexOptions, change: str, begun: bool
) -> None:
    """It would lose what was written, also where adding them began before; building it again is named."""
    if begun:
        interrupt_adding(built, corpus, options)
    if change == "delete":
        delete_from_index(built, ["b"])
    else:
        build_index(built, [{"id": "d", "text": "Dogs bark."}], change, IndexOptions(model=options.model))
    by, left = CHANGES[change]
    for resume in (True, False):
        with pytest.raises(IndexStateError, match=f"changed afterwards by {by}\n") as caught:
            build_index(built, corpus, options=replace(options, channels=None, resume=resume))
        again = f"sparta index --corpus FILE --overwrite --index {built}"
        assert caught.value.remedy.for_command_line().endswith(again)
    with Index(built) as index:
        with index.searcher.reader.snapshot() as view:
            assert sorted(view.lucene.ids(view.lucene.live())) == left
        with pytest.raises(IndexStateError, match="BM25-only") as caught:
            index.search("cat", channel="impact")
        assert by in caught.value.message
        assert again in caught.value.remedy.for_command_line()
        assert "--resume" not in caught.value.remedy.for_command_line()
    build_index(built, corpus, "overwrite", replace(options, channels=None))
    with Index(built) as index:
        assert index.search("who founded google", channel="impact")


def test_adding_impacts_goes_on_where_it_was_interrupted(
    built: Path, corpus: Path, options: IndexOptions
) -> None:
    interrupt_adding(built, corpus, options)
    encoded: list[int] = []
    again = replace(options, channels=None, resume=True)
    assert build_index(built, corpus, options=again, advance=encoded.append).documents == 3
    assert sum(encoded) == 2


def interrupt_adding(built: Path, corpus: Path, options: IndexOptions) -> None:
    """Impacts of the first passage are committed."""
    seen: list[int] = []

    def stop(n: int) -> None:
        seen.append(n)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparta.index.inputs.options._PASSAGES_PER_BATCH", 1)
        adding = replace(options, channels=None, resume=True)
        with pytest.raises(Interrupted):
            build_index(built, corpus, options=adding, advance=stop)
    assert IndexFolder(built).state().building


def test_what_is_added_is_not_encoded_either(built: Path, options: IndexOptions) -> None:
    more = [{"id": "d", "text": "Dogs bark."}]
    for mode in ("append", "update"):
        report = build_index(built, more, mode, IndexOptions(model=options.model))
        assert (report.documents, report.written.get("postings", 0)) == (4, 0)
    with pytest.raises(InputError, match="use channels='bm25'"):
        build_index(built, more, "update", replace(options, channels="impact,bm25"))
    assert IndexFolder(built).require_live().channels == "bm25"


def test_other_channels_are_refused(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(InputError, match="impact,bm25 or bm25, each also with dense, found 'dense'"):
        build_index(tmp_path / "ix", corpus, options=IndexOptions(channels="dense"))
