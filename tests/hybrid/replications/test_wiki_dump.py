"""Wikipedia's markup, its XML dump and WikiExtractor's output: texts, links, what is left out."""

from __future__ import annotations

import bz2
import json
import time
import tracemalloc
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from hybrid.replications.wikipedia.dump import pages_of, write_links
from hybrid.replications.wikipedia.wikitext import anchored, paragraphs_of, target_of
from sparta.base.errors import InputError
from tests.programs import dense

EINSTEIN = """{{Short description|Physicist {{born|1879}}}}
<!-- a note [[Not this]] -->
[[File:Einstein.jpg|thumb|The [[physicist]] in 1921]]
'''Albert Einstein''' was born in [[Ulm]], a [[city]]<ref>{{cite|[[Nor this]]}}</ref> of the
[[Kingdom of Württemberg|kingdom]].
{| class="wikitable"
| a [[Table]]
|}
== Work &amp; life ==
* He wrote on [[relativity (physics)#Special|relativity]], &nbsp;''not'' on [[bus]]es, [[:Category:Physics]].
See [https://x.org his page] and [[fr:Albert Einstein]]<br/>.
[[Category:Physicists]]
"""


def page(title: str, number: int, text: str, more: str = "", ns: int = 0) -> str:
    return (
        f"<page><title>{title}</title><ns>{ns}</ns><id>{number}</id>{more}<revision><id>9</id>"
        f"<text>{escape(text)}</text></revision></page>"
    )


DUMP = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo><base>x</base></siteinfo>'
    + page("Albert Einstein", 1, EINSTEIN)
    + page("City", 2, f"A [[Settlement]] {'with many people ' * 50}.")
    + page("Settlement", 3, "#REDIRECT [[Village]]", '<redirect title="Village" />')
    + page("Village", 4, "#REDIRECT [[Town]]", '<redirect title="Town" />')
    + page("Talk:City", 4, "who wrote this", ns=1)
    + page("Empty", 5, "{{stub}}")
    + "</mediawiki>"
)


def test_markup() -> None:
    first, second, third, fourth = paragraphs_of(EINSTEIN)
    assert first.text == "Albert Einstein was born in Ulm, a city of the"
    assert [(first.text[a:b], to) for a, b, to in first.links] == [("Ulm", "Ulm"), ("city", "City")]
    assert second.text == "kingdom."
    assert second.links[0].target == "Kingdom of Württemberg"
    assert third.section == "Work & life"
    assert third.text == "He wrote on relativity, not on buses, Category:Physics."
    assert [(third.text[a:b], to) for a, b, to in third.links] == [
        ("relativity", "Relativity (physics)"),
        ("buses", "Bus"),
    ]
    assert fourth.text == "See his page and fr:Albert Einstein."
    assert fourth.links == ()


def test_what_never_ends_does_no_harm() -> None:
    assert [p.text for p in paragraphs_of("an {{open one\n\na [[link that is open")] == [
        "an {{open one",
        "a [[link that is open",
    ]
    open_one = "a stray {{open\nThen {{cite|x}} text, {|\n{{b|{{c}}}} d"
    assert [p.text for p in paragraphs_of(open_one)] == ["a stray {{open", "Then text, {|", "d"]
    assert [p.text for p in paragraphs_of("one<br>line<BR />break")] == ["one line break"]
    assert [p.text for p in paragraphs_of("}} closed ]] too|}")] == ["}} closed ]] too|}"]
    assert [p.text for p in paragraphs_of("text <ref>never closed")] == ["text never closed"]


def test_tags_that_are_shown() -> None:
    """A tag in <nowiki> hides nothing; code in a line is text."""
    shown = "The <nowiki><ref></nowiki> tag.\nAnother [[page]], <nowiki>[[no link]]</nowiki>."
    first, second = paragraphs_of(shown)
    assert (first.text, second.text) == ("The <ref> tag.", "Another page, [[no link]].")
    assert [link.target for link in second.links] == ["Page"]
    written = "L<nowiki>'</nowiki>''Avare'' <nowiki>&lt;x&gt; &#91;y&#93; ''z''</nowiki><!-- no -->"
    written += " <ref name=a/>end"
    assert [p.text for p in paragraphs_of(written)] == ["L'Avare <x> [y] ''z'' end"]
    [one] = paragraphs_of("The function <code>printf</code> prints <math>x^2</math> squares.")
    assert one.text == "The function printf prints squares."


def test_many_tags_that_never_end_take_no_longer() -> None:
    began = time.process_time()
    [one] = paragraphs_of("<ref name=x>some words " * 50_000)
    assert one.text.startswith("some words some words")
    assert time.process_time() - began < 5, "minutes, if each looked for its end in all that follows"


def test_namespaces_of_another_language(tmp_path: Path) -> None:
    spaces = "".join(
        f'<namespace key="{key}">{name}</namespace>'
        for key, name in ((0, ""), (6, "Datei"), (12, "Hilfe"), (14, "Kategorie"))
    )
    text = (
        "[[Datei:a.jpg|mini|Ein [[Hund]]]] Ein [[Haustier]], siehe [[Hilfe:Suche|Suche]]. [[Kategorie:Hunde]]"
    )
    page = f"<page><title>Hund</title><ns>0</ns><id>1</id><revision><text>{text}</text></revision></page>"
    dump = tmp_path / "dump.xml"
    dump.write_text(f"<mediawiki><siteinfo><namespaces>{spaces}</namespaces></siteinfo>{page}</mediawiki>")
    [found] = pages_of(dump)
    [paragraph] = found.paragraphs
    assert paragraph.text == "Ein Haustier, siehe Suche."
    assert [link.target for link in paragraph.links] == ["Haustier"]


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("max_Planck", "Max Planck"),
        ("#Top", ""),
        ("File:A.jpg", ""),
        ("2001: A Space Odyssey", "2001: A Space Odyssey"),
    ],
)
def test_targets(written: str, title: str) -> None:
    assert target_of(written) == title


def test_an_xml_dump(tmp_path: Path) -> None:
    (tmp_path / "dump.xml.bz2").write_bytes(bz2.compress(DUMP.encode()))
    links, passages = tmp_path / "links.jsonl", tmp_path / "passages.jsonl"
    command = ["links", "--dump", tmp_path / "dump.xml.bz2", "--output", links, "--passages", passages]
    found = dense(*command, catch_exceptions=False)
    assert "4 paragraphs with 6 links" in found.stdout
    assert "3 passages from 2 pages" in found.stdout
    rows = [json.loads(line) for line in links.read_text().splitlines()]
    assert [(r["title"], r["paragraph"], len(r["links"])) for r in rows] == [
        ("Albert Einstein", 0, 2),
        ("Albert Einstein", 1, 1),
        ("Albert Einstein", 2, 2),
        ("City", 0, 1),
    ]
    assert rows[3]["links"] == [{"start": 2, "end": 12, "anchor": "Settlement", "target_title": "Town"}]
    corpus = [json.loads(line) for line in passages.read_text().splitlines()]
    assert [(r["id"], len(r["text"].split())) for r in corpus] == [("1-0", 25), ("2-0", 100), ("2-1", 53)]


def test_wiki_extractor(tmp_path: Path) -> None:
    """Its documents and its JSON lines hold the same pages; newer versions escape the links."""
    body = 'He admired <a href="Max%20Planck">Planck</a> &amp; <b>others</b>.'
    folder = tmp_path / "AA"
    folder.mkdir()
    text = f'<doc id="7" url="u" title="A &amp; B">\nA & B\n\n{body}\n</doc>\n'
    (folder / "wiki_00").write_text(text)
    other = {"id": "7", "url": "u", "title": "A & B", "text": "A & B\n\n" + body.replace("<a", "&lt;a")}
    (tmp_path / "wiki.json").write_text(json.dumps(other) + "\n")
    [one], [same] = list(pages_of(tmp_path / "AA")), list(pages_of(tmp_path / "wiki.json"))
    assert one == same
    assert one.paragraphs[0].text == "He admired Planck & others."
    assert [(a, b, to) for a, b, to in one.paragraphs[0].links] == [(11, 17, "Max Planck")]
    assert anchored("no link").links == ()


@pytest.mark.parametrize("title", ['"Weird Al" Yankovic', "AT&amp;T", "1 > 0", "P [Q] (R)", "東京"])
def test_titles_of_wiki_extractor(title: str, tmp_path: Path) -> None:
    """It writes titles as the dump has them: quotes as they are, `&` escaped, before the text too."""
    path, lines = tmp_path / "wiki_00", f"{title}\n\nThe text.\n"
    path.write_text(f'<doc id="7" url="u?curid=7" title="{title}">\n{lines}</doc>\n')
    [one] = list(pages_of(path))
    assert (one.title, [p.text for p in one.paragraphs]) == (title.replace("&amp;", "&"), ["The text."])
    path.write_text(json.dumps({"id": "7", "title": title, "text": lines}))
    assert list(pages_of(path)) == [one]


DOC = '<doc id="7" url="u" title="A">\nA\n\nThe text.\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DOC, "wiki: the page 'A' has no end: expected </doc>, found the end of the file"),
        (DOC + DOC + "</doc>\n", "wiki:5: the page 'A' has no end: expected </doc>, found another page"),
        ('{"id": "7", "text": "x"}', "wiki:1: missing title"),
        ('{"id": "7", "title": "A", "text": null}', "wiki:1: text of the wrong type"),
        ('{"title": "A", "text": "x"}', "wiki:1: missing id"),
    ],
)
def test_broken_files_of_wiki_extractor(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "wiki").write_text(content)
    with pytest.raises(InputError) as raised:
        list(pages_of(tmp_path / "wiki"))
    assert said in str(raised.value)


@pytest.mark.parametrize("names", [("dump", "a", "a"), ("dump", "dump", "a"), ("dump", "a", "./dump")])
def test_no_file_is_written_over_another(names: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "dump").write_text(DUMP)
    with pytest.raises(InputError, match="must be different files"):
        write_links(*(tmp_path / name for name in names))
    assert (tmp_path / "dump").read_text() == DUMP


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}\nplain", "does not fit the format"),
        (DUMP[:700], "XML of the dump is damaged"),
        ("<mediawiki></mediawiki>", "no page"),
    ],
)
def test_other_files(content: str, said: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_text(content.removeprefix("{}\n"))
    with pytest.raises(InputError, match=said):
        write_links(dump, tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{{lang|en|}}A b and {{c|d}} e.", "A b and e."),
        ("{{Infobox person\n| name = X\n|}}Max.", "Max."),
        ("{{a|{{b|}}}}c", "c"),
        ("{|\n| {{b|}}\n|}c", "c"),
        ("{{a|{|\n| b\n|}}}c", "c"),
    ],
)
def test_a_template_may_end_in_an_empty_parameter(text: str, left: str) -> None:
    assert [one.text for one in paragraphs_of(text)] == [left]


def texts(wikitext: str) -> list[str]:
    return [paragraph.text for paragraph in paragraphs_of(wikitext)]


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("a\n[[File:A.jpg|thumb|left\n|A [[link]] in\na caption]]\nb", ["a", "b"]),
        ("[[Category:A\n]]a", ["a"]),
        ("Go [[Town|to\nthe town]] now.", ["Go to the town now."]),
        ("[mailto:a@b.c Write], [ftp://x.org/y files], [//x.org see [[Ulm]]], [https://x.org]!", None),
        ("__NOTOC__\na __noindex__ b\n__KEIN_INHALTSVERZEICHNIS__", ["a b"]),
        ("__init__", ["__init__"]),
        ("!Kung is a people.\n|x| is a number.", ["!Kung is a people.", "|x| is a number."]),
        ("a\n{|\n! x\n| y\nb", ["a", "b"]),
        ("a\n{{start}}\n|-\n| y\n|}\n| b", ["a", "| b"]),
        ("{{Infobox\n| a = b\nc", ["{{Infobox", "c"]),
        ("-----a", ["a"]),
        ("[[Ulm and [[City|town]]s", ["[[Ulm and towns"]),
        ("Pi <nowiki>__TOC__ [//x y]</nowiki>", ["Pi __TOC__ [//x y]"]),
    ],
)
def test_no_markup_in_texts(wikitext: str, expected: list[str] | None) -> None:
    assert texts(wikitext) == (expected or ["Write, files, see Ulm, !"])


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{convert|3|km|mi}}", "3 km"),
        ("{{Convert|3|-|5.5|km|mi|abbr=on}}", "3–5.5 km"),
        ("{{cvt|5|ft|10|in|m}}", "5 ft 10 in"),
        ("{{convert|1,200|to|1,300|m2}}", "1,200 to 1,300 m2"),
        ("{{nowrap|{{convert|3|km}} {{ndash}} [[a|b]]}}", "3 km – b"),
        ("{{lang|fr|le [[Monde|monde]]}}", "le monde"),
        ("{{circa|1500}}", "c. 1500"),
        ("{{transliteration|ru|Moskva}}", "Moskva"),
        ("{{nowrap}}{{convert}}{{lang|fr}}{{cite|a}}", ""),
        ("{{nowrap|" + "a" * 2000 + "}}", ""),
    ],
)
def test_templates_of_sentences_are_text(template: str, expected: str) -> None:
    assert texts(f"(x{template}y)") == [f"(x{expected}y)"]


def test_a_number_of_a_character_may_have_any_length() -> None:
    assert texts("a&#" + "9" * 5000 + ";b") == ["a\ufffdb"]
    assert anchored('<a href="b">a&#' + "9" * 5000 + ";</a>").text == "a\ufffd"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "unit"),
    [
        ("<mediawiki><page><title>a</title><text>", "word "),
        ("<mediawiki><page><text>", "\n"),
        ("<mediawiki><page><!--", "word "),
        ("<mediawiki><page><text a='", "word "),
        ("<mediawiki>", "<a/>"),
        ("<mediawiki>", "<a>"),
        ("<mediawiki><siteinfo>", "<namespace key='1'>a</namespace>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><mediawiki>', "word "),
        ('<doc id="1" title="a">\n', "a\n"),
    ],
)
def test_a_dump_without_end_does_not_fill_the_memory(
    begin: str, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "1")
    dump = tmp_path / "dump.bz2"
    repeated = bz2.compress((unit * (200_000 // len(unit))).encode(), 1)
    dump.write_bytes(bz2.compress(begin.encode(), 1) + 30 * repeated)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            list(pages_of(dump))
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert str(dump) in str(error.value)


def test_a_dump_whose_pages_are_short_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARTA_MAX_LINE_MB", "1")
    dump = tmp_path / "dump.xml"
    dump.write_text("<mediawiki>" + page("A", 1, "word " * 40_000) * 10 + "</mediawiki>")
    assert sum(1 for _ in pages_of(dump)) == 10


def test_redirects_that_lead_to_each_other_end(tmp_path: Path) -> None:
    dump = tmp_path / "dump.xml"
    pages = [page(a, 1, "", f'<redirect title="{b}"/>') for a, b in (("B", "C"), ("C", "B"))]
    dump.write_text("<mediawiki>" + page("A", 1, "[[B]]") + "".join(pages) + "</mediawiki>")
    assert write_links(dump, tmp_path / "links", tmp_path / "passages").links == 1
