"""Encoding of questions and passages into vectors, on CPUs without torch."""
