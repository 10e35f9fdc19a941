"""Reads dumps of Wikipedia: pages, their text and their links."""
