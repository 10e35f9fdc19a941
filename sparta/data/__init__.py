"""Readers and writers of all text file formats: corpora, queries, runs and question sets."""
