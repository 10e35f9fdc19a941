"""Evaluation of rankings: test sets, measures, significance. Channels and their fusion will stand on it."""
