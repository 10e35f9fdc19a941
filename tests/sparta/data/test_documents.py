"""HTML and PDF files: their texts, and files that are damaged, hostile or in a wrong encoding."""

from __future__ import annotations

import bz2
import errno
import gzip
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparta.base.errors import InputError, MissingPackageError, StorageError
from sparta.base.files import storage_errors
from sparta.data.corpus import open_corpus
from sparta.data.formats import limited
from sparta.data.formats.limited import Documents
from sparta.data.parsing import BadRecordError
from sparta.data.readers.record_reader import PartOfCorpus
from tests.documents import bomb, encrypted, form, pdf

resiliparse = pytest.importorskip("resiliparse", reason="needs the extra documents")
pypdfium2 = pytest.importorskip("pypdfium2", reason="needs the extra documents")

MENU = "<ul><li><a href=/>Home</a><li><a href=/about>About us</a></ul>"
BIG_MENU = "<ul>" + "<li><a href=/about>About us</a>" * 50 + "</ul>"
LIST = "<p>You need:</p><ul><li>eggs<li>milk</ul>"


@pytest.fixture(scope="module")
def documents() -> Iterator[Documents]:
    with Documents() as opened:
        yield opened


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        (f"<title>Cake &amp; tea</title><body>{MENU}{LIST}", "Cake & tea", "You need:\n\n  • eggs\n  • milk"),
        (f"<body><nav>{MENU}</nav><h1>Cake</h1><p>Mix.</p><footer>2020</footer>", "Cake", "Cake\n\nMix."),
        ("<script>var x = 1</script><style>p {}</style><p>a &lt; b<p>c", "", "a < b\n\nc"),
        ("<ul><li><a href=/>Home</a></ul>", "", "• Home"),  # without a main text, all text
        (f"{BIG_MENU}<p>Mix the eggs.</p>", "", "Mix the eggs."),
        ("no tags", "", "no tags"),
        ("", "", ""),
    ],
)
def test_the_main_text_of_a_page(documents: Documents, page: str, title: str, text: str) -> None:
    record = documents.read("page.html", page.encode())
    assert (record["title"], record["text"].strip()) == (title, text)


CLAUSES = "<p>Arbitration takes place in Rotterdam.</p>" * 9
DOWNLOADS = "<ul>" + "<li><a href=p.html>Datasheet of pump model P3</a>: for Rotterdam" * 9 + "</ul>"


@pytest.mark.parametrize(
    "content",
    [
        *(f"<div class={name}>{CLAUSES}</div>" for name in ("legal", "hidden-xs", "gallery", "print-only")),
        DOWNLOADS,
    ],
)
def test_content_with_the_class_or_the_links_of_a_menu(documents: Documents, content: str) -> None:
    main = f"<main><header><h1>Pumps</h1></header><p>Intro.</p>{content}</main>"
    page = f"<nav>Home</nav><aside>News</aside>{main}<footer>Imprint</footer>"
    text = documents.read("page.html", page.encode())["text"]
    assert text.startswith("Pumps\n\nIntro.")
    assert text.count("Rotterdam") == 9
    assert not any(word in text for word in ("Home", "News", "Imprint"))


COOKIES = "<p>Cookies hold data about your device.</p>" * 9


@pytest.mark.parametrize("content", ["div", "article", "main", "div role=main"])
@pytest.mark.parametrize(
    "surroundings",
    [
        "div style='display:none'",
        "div style='color: red; Display: none'",
        "div hidden",
        "div class=modal role=dialog",
        "div class=modal><dialog",
    ],
)
def test_hidden_text_is_not_content(documents: Documents, content: str, surroundings: str) -> None:
    page = f"<{content}><h1>Tides</h1><p>The sea.</{content.split()[0]}><{surroundings}>{COOKIES}"
    assert documents.read("page.html", page.encode())["text"] == "Tides\n\nThe sea."


@pytest.mark.parametrize("content", ["article", "main", "div role=main"])
@pytest.mark.parametrize("surroundings", ["div class=cookie-banner", "div class=sidebar", "aside><article"])
def test_text_beside_the_content(documents: Documents, content: str, surroundings: str) -> None:
    page = f"<{content}><h1>Tides</h1><p>The sea.</{content.split()[0]}><{surroundings}>{COOKIES}"
    assert documents.read("page.html", page.encode())["text"] == "Tides\n\nThe sea."


def test_an_element_in_a_content_element_counts_once(documents: Documents) -> None:
    page = f"<main>Terms<article><div class=legal>{CLAUSES}</div></article></main>"
    assert documents.read("page.html", page.encode())["text"].count("Rotterdam") == 9


@pytest.mark.parametrize(
    ("charset", "declared"),
    [
        ("utf-8", ""),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("utf-8", "iso-8859-1"),
        ("latin-1", "iso-8859-1"),
        ("shift_jis", "shift_jis"),
        ("iso-2022-jp", "iso-2022-jp"),
        ("cp1251", "windows-1251"),
    ],
)
def test_the_encoding_of_a_page(documents: Documents, charset: str, declared: str) -> None:
    word = {"latin-1": "café", "cp1251": "привет"}.get(charset, "日本語")
    page = f"<meta charset={declared}>" if declared else ""
    assert documents.read("page.htm", (page + f"<p>{word}").encode(charset))["text"] == word


def test_the_pages_of_a_pdf(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["", "The moon\nis (far).", "", "Café"], "Moon"))
    (passage,) = open_corpus(tmp_path / "a.pdf")
    assert (passage.passage_id, passage.title, passage.text) == (
        "a.pdf",
        "Moon",
        "The moon\nis (far).\n\nCafé",
    )
    starts = passage.record["page_starts"]
    assert len(starts) == 4
    assert (passage.text[starts[1] :][:8], passage.text[starts[3] :]) == ("The moon", "Café")


def test_the_entries_of_a_form_are_text(documents: Documents) -> None:
    record = documents.read("a.pdf", form("Name:", "Ada Lovelace"))
    assert (record["text"].split(), record["page_starts"]) == (["Name:", "Ada", "Lovelace"], [0])


def test_documents_stand_beside_texts_in_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.md").write_text("# Moon\n\nround")
    (tmp_path / "b.HTM").write_text("<p>The sun.")
    (tmp_path / "c.html.gz").write_bytes(gzip.compress(b"<title>River</title><p>Long."))
    (tmp_path / "sub" / "d.pdf").write_bytes(pdf(["Deep."]))
    (tmp_path / "queries.html").write_text("<p>no")
    reader = open_corpus(tmp_path)
    assert [(passage.passage_id, passage.title, passage.text) for passage in reader] == [
        ("a.md", "Moon", "# Moon\n\nround"),
        ("b.HTM", "b", "The sun."),
        ("c.html", "River", "Long."),
        ("sub/d.pdf", "d", "Deep."),
    ]
    assert reader.fingerprint() == {**reader.identity(), "source": str(tmp_path)}


BAD = {
    "encrypted.pdf": (encrypted(), "encrypted PDF: it needs a password"),
    "scan.pdf": (pdf(["", ""]), "PDF without text: none of its 2 pages has text"),
    "broken.pdf": (pdf(["a"])[:40], "broken PDF"),
    "empty.pdf": (b"", "broken PDF"),
    "text.pdf": (b"plain text", "broken PDF"),
    "declared.html": (b"<meta charset=utf-8><p>caf\xe9", "wrong encoding: expected a page in UTF-8"),
}


def test_a_bad_document_is_one_bad_record(tmp_path: Path) -> None:
    for name, (content, _) in BAD.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "z.html").write_text("<p>fine")
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["z.html"]
    skips = {Path(skip.where.removesuffix(":1")).name: skip.reason for skip in reader.counts.first_skips}
    for name, (_, message) in BAD.items():
        assert message in skips[name]
    with pytest.raises(InputError, match=r"(?s)broken.pdf:1: broken PDF.*skip_invalid") as caught:
        list(open_corpus(tmp_path / "broken.pdf"))
    assert caught.value.exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"), [("deep.html", b"<div>" * 200_000), ("bomb.pdf", bomb(20))], ids=["deep", "bomb"]
)
def test_an_endless_document_is_one_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    monkeypatch.setattr(limited, "CPU_SECONDS", 0)  # less than one second
    (tmp_path / name).write_bytes(content)
    (tmp_path / "z.html").write_text("<p>fine")
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["z.html"]
    assert reader.counts.reasons == {"endless file": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
def test_a_crash_is_one_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "MEMORY_BYTES", 100 << 20)
    with Documents() as documents:
        with pytest.raises(BadRecordError, match=r"needs more than|crashed"):
            documents.read("large.html", b"<p>word " * 2_000_000)
        assert documents.read("small.html", b"<p>word")["text"] == "word"


def test_a_part_of_a_corpus_has_the_errors_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    (tmp_path / "a.html").write_text("<p>moon")
    monkeypatch.setattr(Documents, "read", read)
    corpus = open_corpus(tmp_path)
    for reader in (corpus, PartOfCorpus(corpus, {"a.html"})):
        with pytest.raises(StorageError, match="Too many open files"), storage_errors(tmp_path):
            list(reader)


def test_a_text_has_a_maximum_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "0.001")
    (tmp_path / "long.html").write_text("<p>" + "word " * 300)
    (tmp_path / "long.md").write_text("word " * 300)
    (tmp_path / "long.pdf").write_bytes(pdf(["word"]))
    (tmp_path / "z.html").write_text("<p>fine")
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["long.pdf", "z.html"]
    assert reader.counts.reasons == {"file too long": 2}
    assert reader.fingerprint() == {**reader.identity(), "source": str(tmp_path)}


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "b.pdf").write_bytes(pdf(["word"]))
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pypdfium2" else found(name)
    )
    with pytest.raises(MissingPackageError, match="pypdfium2 is not installed") as caught:
        open_corpus(tmp_path)
    assert "[documents]" in str(caught.value.remedy)
    reader = open_corpus(tmp_path, skip_invalid=True)
    assert [passage.passage_id for passage in reader] == ["a.md"]
    assert reader.counts.reasons == {"missing package": 1}


def test_xml_is_not_cut_into_lines(tmp_path: Path) -> None:
    dump = tmp_path / "enwiki pages.xml.bz2"
    dump.write_bytes(bz2.compress(b'<mediawiki xmlns="x">\n  <page>\n'))
    with pytest.raises(InputError, match="unknown format") as caught:
        list(open_corpus(dump))
    links = f"dense links --dump '{dump}' --output links.jsonl --passages passages.jsonl"
    assert [command.for_command_line() for command in caught.value.remedy.commands] == [links]
    page = tmp_path / "page.xhtml"
    page.write_text("\ufeff <!DOCTYPE html>\n<html>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"name the file \.html") as caught:
        list(open_corpus(page))
    assert "python3" not in str(caught.value)
