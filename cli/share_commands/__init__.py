"""Commands that copy and share an index."""
