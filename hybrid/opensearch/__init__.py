"""Copies an index to OpenSearch (as files or by push), and updates and searches the copy."""
