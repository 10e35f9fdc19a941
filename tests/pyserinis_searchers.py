"""Pyserini's searchers without its encoders, which no test calls: 3 s to import in place of 17, mostly torch.

Import it after Java has started, as Pyserini itself.
"""

import sys
from types import ModuleType


class _NoEncoders(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


sys.modules["pyserini.encode"] = _NoEncoders("pyserini.encode")

from pyserini.search.lucene import LuceneImpactSearcher, LuceneSearcher  # noqa: E402

__all__ = ["LuceneImpactSearcher", "LuceneSearcher"]
