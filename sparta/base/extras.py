"""Optional Python packages, and the extra of `sparta-search` that installs each package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparta.base.errors import MissingPackageError

EXTRAS = {
    "encode": ("openvino", "huggingface_hub", "scipy", "sentencex", "zstandard", "regex"),
    "dense": ("faiss",),
    "train": ("torch", "transformers"),
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
"""The import names of each extra's packages.

Without extras, `sparta-search` searches all languages except Chinese.
"""
_EXTRA_OF = {package: extra for extra, packages in EXTRAS.items() for package in packages}


@contextmanager
def optional_packages() -> Iterator[None]:
    """Replace the ImportError of an optional package by an error that names the extra to install.

    Works as a context manager and as a decorator.

    :raises MissingPackageError: an optional package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        raise MissingPackageError(
            f"the Python package {package} is not installed",
            remedy=f"pip install 'sparta-search[{_EXTRA_OF[package]}]'",
        ) from error
