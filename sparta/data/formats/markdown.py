"""Reading a Markdown file as one record: front matter, title and text."""

from __future__ import annotations

import re
from typing import Any

from sparta.data.parsing import BadRecordError, as_object

_MAX_FRONT_MATTER = 1 << 16
"""The maximum length of front matter, in characters; parsing it takes less than a second."""
_FRONT = re.compile(r"---[ \t]*\r?\n")
_FRONT_END = re.compile(r"^(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_NOT_METADATA = {"id", "_id", "title", "text", "contents", "context", "start", "end"}
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HTML = re.compile(r" {0,3}<(!--|pre|script|style|textarea)", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}#{1,6}(?![^ \t])(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_NO_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[>|<]|(?:[-*+]|\d{1,9}[.)])[ \t])")


def read_markdown(text: str) -> dict[str, Any]:
    """Return the record of a Markdown text: the fields of its front matter, with `title` and `text`.

    The title comes from the front matter, else from the first heading (CommonMark); otherwise there is
    none. The text is everything after the front matter.

    :raises BadRecordError: the front matter is not valid YAML, or is not a block of names and values.
    """
    front, body = _front_matter(text)
    title = front.get("title")
    if not isinstance(title, str) or not title.strip():
        title = _first_heading(body)
    metadata = {name: value for name, value in front.items() if name not in _NOT_METADATA}
    return {**as_object(metadata), **({"title": title} if title else {}), "text": body}


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter (between two lines `---` at the beginning) and the text after it.

    Names map to strings as written, or to lists and objects of strings. If the lines `---` enclose anything
    but names and values, they belong to the text, and the front matter is empty.
    """
    begin, end = _FRONT.match(text), None
    if (
        begin is None
        or (end := _FRONT_END.search(text, begin.end(), begin.end() + _MAX_FRONT_MATTER)) is None
    ):
        return {}, text
    import yaml  # imported here, since few files need YAML

    class Texts(yaml.BaseLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few nested aliases can expand to terabytes
                raise yaml.YAMLError("YAML aliases (*) are not supported in front matter")
            return super().compose_node(parent, index)

    try:
        # The base loader builds only strings, lists and dictionaries.
        front = yaml.load(text[begin.end() : end.start()], Loader=Texts)
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        raise BadRecordError(
            "broken front matter",
            f"the lines between --- and --- are not valid YAML: {_yaml_problem(error)}",
            remedy="correct the YAML, or begin the file with an empty line",
        ) from None
    return (front or {}, text[end.end() :]) if front is None or isinstance(front, dict) else ({}, text)


def _yaml_problem(error: Exception) -> str:
    """Describe an error in YAML, with its line in the file."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"{problem} (line {mark.line + 2})" if mark else problem


def _without_closing_marks(heading: str) -> str:
    """Return a heading without its closing marks (`# Title ##`); `C#` keeps its mark."""
    bare = heading.rstrip("#")
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def _first_heading(text: str) -> str:
    """Return the first heading of a Markdown text; "" if there is none.

    A heading is a line `# …`, or lines above `===` or `---`. Code, comments, quotations, lists and tables
    contain no headings.
    """
    paragraph: list[str] = []
    in_block = False  # in a list or a quotation, up to a blank line
    end_pattern: re.Pattern[str] | None = None
    for line in text.splitlines():
        if end_pattern:
            end_pattern = None if end_pattern.search(line) else end_pattern
        elif (end_pattern := _end_of_block(line)) or not line.strip(" \t-*_="):
            if paragraph and _UNDERLINE.fullmatch(line):
                return " ".join(paragraph)
            paragraph, in_block = [], in_block and bool(line.strip())
        elif heading := _HEADING.match(line):
            if title := _without_closing_marks(heading[1].strip()):
                return title
            paragraph = []
        elif in_block or _NO_PARAGRAPH.match(line):
            paragraph, in_block = [], True
        else:
            paragraph.append(line.strip())
    return ""


def _end_of_block(line: str) -> re.Pattern[str] | None:
    """Return the pattern that ends the code or HTML block begun by a line; None if there is no block."""
    if fence := _FENCE.match(line):
        return re.compile(rf"^ {{0,3}}{fence[1][0]}{{{len(fence[1])},}}\s*$")
    if html := _HTML.match(line):
        end = re.compile("-->" if html[1] == "!--" else f"</{html[1]}>", re.IGNORECASE)
        return None if end.search(line, html.end()) else end
    return None
