"""Streams of passages: from files, from records in memory, and from ir_datasets."""
