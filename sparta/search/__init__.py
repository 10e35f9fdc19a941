"""Searching an index, and explaining what was found."""
