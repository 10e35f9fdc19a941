"""Bi-encoders: architecture, checkpoints, and the query side."""
