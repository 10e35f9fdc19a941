"""Channels and their fusion; evaluation of rankings: questions, test sets, measures, significance."""
