"""PDF files for tests, written by hand, so that no test needs a library that writes PDF."""

from __future__ import annotations

from collections.abc import Sequence


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """Return a PDF with one text per page, in Helvetica; a blank text gives a page without text."""
    bodies = [_page_content(text) for text in pages]
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>".encode()]
    for number, body in enumerate(bodies):
        content = f"/Contents {4 + 2 * number} 0 R/Resources<</Font<</F1 {font}>>>>"
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]{content}>>".encode())
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(body), body))
    objects.append(b"<</Title(%s)>>" % _escaped(title))
    return _file(objects, b"/Root 1 0 R/Info %d 0 R" % len(objects))


def form(label: str, entry: str) -> bytes:
    """Return a PDF of one page with a label and a text field, which is filled in."""
    font = b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    body, shown = _page_content(label), b"BT /F1 12 Tf 0 4 Td (%s) Tj ET" % _escaped(entry)
    widget = b"/Subtype/Widget/FT/Tx/T(f)/F 4/Rect[150 700 400 720]/P 3 0 R/AP<</N 6 0 R>>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[5 0 R]>>>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Annots[5 0 R]%s>>" % font,
        b"<</Length %d>>stream\n%s\nendstream" % (len(body), body),
        b"<</Type/Annot%s/V(%s)>>" % (widget, _escaped(entry)),
        b"<</Type/XObject/Subtype/Form/BBox[0 0 250 20]%s/Length %d>>stream\n%s\nendstream"
        % (font, len(shown), shown),
    ]
    return _file(objects, b"/Root 1 0 R")


def bomb(length: int) -> bytes:
    """Return a PDF whose page refers to a form that draws itself `length` times, level after level."""
    levels = 9
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 1/Kids[3 0 R]>>"]
    font = b"/Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
    objects.append(
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>"
    )
    objects.append(b"<</Length 5>>stream\n/X Do\nendstream")
    for level in range(levels):
        last = level == levels - 1
        body = b"BT /F1 9 Tf (word) Tj ET " * length if last else b"/X Do " * length
        inner = font if last else b"/XObject<</X %d 0 R>>" % (6 + level)
        head = b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<<%s>>/Length %d>>" % (inner, len(body))
        objects.append(head + b"stream\n" + body + b"\nendstream")
    return _file(objects, b"/Root 1 0 R")


def encrypted() -> bytes:
    """Return a PDF that asks for a password: its keys belong to no empty password."""
    key = b"<%s>" % (b"41" * 32)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 0/Kids[]>>",
        b"<</Filter/Standard/V 2/R 3/Length 128/P -4/O %s/U %s>>" % (key, key),
    ]
    return _file(objects, b"/Root 1 0 R/Encrypt 3 0 R/ID[<00><00>]")


def _page_content(text: str) -> bytes:
    lines = b"".join(b"(%s) '\n" % _escaped(line) for line in text.split("\n"))
    return b"BT /F1 12 Tf 14 TL 72 720 Td\n" + lines + b"ET" if text else b""


def _escaped(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252")


def _file(objects: Sequence[bytes], trailer: bytes) -> bytes:
    content, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj%sendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    table = b"xref\n0 %d\n0000000000 65535 f \n" % size + table
    return content + table + b"trailer<</Size %d%s>>\nstartxref\n%d\n%%%%EOF" % (size, trailer, len(content))
