"""Corpora, queries, runs and question sets: every file format that is read or written as text."""
