"""Handing an index to other engines."""
