"""Write docs/messages.md, all messages of the product by module: python scripts/messages.py [FILE]."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sparta.base.remedies import Option

ROOT = Path(__file__).parents[1]
PACKAGES = ("sparta", "dense", "hybrid", "cli")
HEAD = """# Messages

Every message that sparta can print, by module. `scripts/messages.py` writes this page from the code; a test
compares the two. Braces stand for values. An arrow leads to the remedy.
"""
_LOGS = ("debug", "info", "warning", "error", "exception")


class Message(NamedTuple):
    """A message in the code: file, text and remedy ("" without)."""

    file: str
    text: str
    remedy: str


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield path, text and tree of each module of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(ROOT).as_posix(), text, ast.parse(text)


def messages() -> Iterator[Message]:
    """Yield the messages of errors, logs and warnings, and printed lines, in the order of the files."""
    for name, _, tree in modules():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not _is_message(node):
                continue
            text = written(_value_of(node.args[1 if ast.unparse(node.func) == "HttpError" else 0], tree))
            if text and ast.unparse(node.func) == "BadRecordError" and len(node.args) > 1:
                text += f": {written(_value_of(node.args[1], tree)) or '{…}'}"
            if re.search("[a-z]{2}", re.sub(r"\{[^{}]*\}|%s", "", text)):
                remedy = next((k.value for k in node.keywords if k.arg == "remedy"), None)
                yield Message(name, text, written(_value_of(remedy, tree)) if remedy else "")


def _value_of(node: ast.expr, tree: ast.Module) -> ast.expr:
    """Return the expression last assigned to a variable before `node`; other nodes as they are.

    A constant may be imported from another module of the product.
    """
    if not isinstance(node, ast.Name):
        return node
    values = [
        other.value
        for other in ast.walk(tree)
        if isinstance(other, ast.Assign)
        and other.lineno <= node.lineno
        and any(isinstance(target, ast.Name) and target.id == node.id for target in other.targets)
    ]
    if values:
        return max(values, key=lambda value: value.lineno)
    for other in ast.walk(tree):
        if isinstance(other, ast.ImportFrom) and any(alias.name == node.id for alias in other.names):
            module = (ROOT / f"{other.module}".replace(".", "/")).with_suffix(".py")
            if module.is_file():
                return _value_of(ast.Name(node.id, lineno=sys.maxsize), ast.parse(module.read_bytes()))
    return node


def _is_message(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    is_log = isinstance(call.func, ast.Attribute) and name in _LOGS and "log" in ast.unparse(call.func.value)
    is_error = name.endswith("Error") and name[:1].isupper()
    return bool(call.args) and (
        is_log or is_error or ast.unparse(call.func) in ("click.echo", "warnings.warn")
    )


def written(node: ast.expr) -> str:
    """Return the text of a string expression, with `{…}` for values; "" for an expression without text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(written(part) or f"{{{_value(part)}}}" for part in parts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return written(left) + (written(right) or "{…}")
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(filter(None, (written(body), written(other))))
        case ast.Call(func=ast.Name(id="remedy"), args=[first, *others]):
            text = written(first)
            for part in others:
                text = text.replace("{}", _option(part), 1)
            return text
    return ""


def _option(part: ast.expr) -> str:
    """Return an option as it is typed, and other parts of a remedy in braces."""
    match part:
        case ast.Call(
            func=ast.Name(id="Option"), args=[ast.Constant(value=str(name)), *others], keywords=keywords
        ):
            flags = [ast.literal_eval(each.value) for each in keywords if each.arg == "flag"]
            named = Option(name, flag="".join(flags))
            values = [each.value for each in others if isinstance(each, ast.Constant)]
            return (replace(named, value=values[0]) if values else named).for_command_line()
        case ast.Call(func=ast.Attribute(attr="of"), args=[first, *_]):
            return f"{written(first)} …"
    return f"{{{ast.unparse(part)}}}"


def _value(part: ast.expr) -> str:
    return ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else "…"


def page() -> str:
    """Return the page."""
    lines, file = [HEAD], ""
    for message in messages():
        if message.file != file:
            file = message.file
            lines.append(f"\n## {file}\n")
        arrow = f" → {message.remedy}" if message.remedy else ""
        lines.append(f"- {' '.join((message.text + arrow).split())}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", nargs="?", type=Path, default=ROOT / "docs" / "messages.md")
    output: Path = parser.parse_args().output
    output.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
