"""Shared parts of every sparta package. Needs only the standard library."""
