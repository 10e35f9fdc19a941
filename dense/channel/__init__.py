"""The dense channel of an index."""
