"""Packages that only some work needs, and the extra of `sparta-search` that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparta.base.errors import MissingPackageError

EXTRAS = {
    "encode": ("torch", "transformers", "huggingface_hub", "scipy", "sentencex", "zstandard", "regex"),
    "dense": ("faiss",),
    "eval": ("ir_measures", "pytrec_eval", "regex", "matplotlib"),
    "opensearch": ("opensearchpy",),
    "pyserini": ("pyserini",),
    "mcp": ("fastmcp",),
    "langchain": ("langchain_core",),
    "llamaindex": ("llama_index",),
    "haystack": ("haystack",),
    "pyterrier": ("pyterrier",),
    "beir": ("beir",),
    "mteb": ("mteb",),
    "sentence-transformers": ("sentence_transformers",),
    "ray": ("ray",),
    "zh": ("opencc",),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
}
"""The packages, by the names they are imported by. `sparta-search` alone searches, but for Chinese."""
_EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}


@contextmanager
def optional_packages() -> Iterator[None]:
    """Say which extra to install where a package is missing that not all work needs; also a decorator.

    :raises MissingPackageError: in place of the ImportError of such a package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        raise MissingPackageError(
            f"expected the Python package {package}, which this needs, found it not installed",
            remedy=f"pip install 'sparta-search[{_EXTRA_OF[package]}]'",
        ) from error
