"""Reranking: a cross-encoder orders the first hits of a search anew."""
