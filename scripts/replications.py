"""Write docs/replications.md from measured tables: python scripts/replications.py [--take OUTPUT] [PAGE].

benchmarks/replications/TABLE.json holds the measured rows of a table. With --take, the script first copies
the tables that `hybrid replicate` measured into OUTPUT.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.replications.tables.catalog import TABLES
from hybrid.replications.tables.experiment import ROWS, stored_rows
from hybrid.replications.tables.sources import SOURCES
from hybrid.replications.tables.table import PAPERS, PaperTable, Row

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "replications"
HEAD = """# Replications of the papers' tables

After this page you know which figures of the papers sparta reproduces, on which data, and what is missing.
`scripts/replications.py` writes this page from measured rows.

```
hybrid replicate --data DIR
hybrid replicate sparta-7 --data DIR --questions 500
```

The first command lists all tables with their data and their state. The second command measures a table and
prints the paper's figures beside ours. The repeated command continues an interrupted experiment. DIR holds
data in their published layout, or sets that stand for the published data.

- "paper" rows are the figures that the paper prints. An empty cell is a figure that the paper lacks.
- "ours" rows are measured with the command above the table. "Not measured" marks each gap.
- "A for B" in the data means that set A stands for the published set B. Then compare the differences
  between rows, not the figures with the paper's.
- A cut follows the data: "300 questions, 5,000 passages, 200 steps". Of a cut collection, the passages are
  those that the questions need and those that BM25 ranks best. This makes retrieval easier than in the
  whole collection.
- "shipped model" is the model that sparta installed at the measurement. For SPARTA, it is
  `sparta-bge-small-en`, an earlier default model. It was not trained on the paper's data.
- The cost is the time of the row and the highest memory of the process, on two cores that other programs
  share. At times these programs stop the process, so a time is an upper bound. A training that rows share
  counts once.
- Figures of a small cut show that the experiment runs; they neither confirm nor refute a paper. A share of
  100 questions has a 95 % interval of up to ±10 points. After few steps, variants of a model hardly differ
  from their common start.
"""


def page() -> Iterator[str]:
    """Yield the parts of the page: for each paper, its tables."""
    yield HEAD
    for paper in PAPERS.values():
        yield f"\n## {paper}\n"
        for table in TABLES.values():
            if table.paper == paper:
                yield from _part(table)


def _part(table: PaperTable) -> Iterator[str]:
    """Yield the part of a table: its title, the command, the figures and the gaps."""
    path = MEASURED / f"{table.name}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"facts": {}, "rows": []}
    rows = [Row(**row) for row in stored["rows"]]
    yield f"\n### Table {table.number}: {table.title}\n"
    yield f"\n```\n{_command(table, stored['facts'])}\n```\n"
    if rows:
        yield f"\nSeed {stored['facts']['seed']}.\n"
        if not stored["finished"]:
            yield "\nThe experiment was interrupted: rows are missing.\n"
    else:
        needed = [SOURCES[name].title for name in (*table.sources, *table.any_of)]
        yield f"\nNot measured. Data: {', '.join(needed) or 'none'}.\n"
    yield f"\n{table.compared(rows).write('markdown')}\n"
    for gap in table.gaps:
        yield f"\n{gap}\n"


def _command(table: PaperTable, facts: dict[str, Any]) -> str:
    """Return the command that measures a table, with its cut."""
    options = {
        "encoder": facts.get("encoder") or ("FOLDER" if table.trains else None),
        **facts.get("cut", {}),
    }
    words = [f"--{name} {value}" for name, value in options.items() if value is not None]
    return " ".join([f"hybrid replicate {table.name} --data DIR", *words])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, default=ROOT / "docs" / "replications.md")
    parser.add_argument("--take", type=Path, help="folder in which hybrid replicate measured tables")
    arguments = parser.parse_args()
    if arguments.take:
        MEASURED.mkdir(exist_ok=True)
        for name in TABLES:
            if stored_rows(arguments.take / name):
                measured = arguments.take / name / ROWS
                (MEASURED / f"{name}.json").write_bytes(measured.read_bytes() + b"\n")
    arguments.page.write_text("".join(page()), encoding="utf-8")


if __name__ == "__main__":
    main()
