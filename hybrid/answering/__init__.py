"""Answers questions: a retriever finds passages, and a reader extracts answers from the passages."""
