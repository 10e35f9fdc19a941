"""Encoding a corpus into shards of passages, and reading the shards from disk."""
