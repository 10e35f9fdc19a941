"""Dumps of Wikipedia: pages, their text and the links in it."""
