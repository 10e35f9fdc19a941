"""Readers: models that find an answer in passages, and know no retriever."""
