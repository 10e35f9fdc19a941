"""Answers: a retriever finds passages, a reader finds the answer in them."""
