"""Encoded passages on disk, and encoding a corpus into them."""
