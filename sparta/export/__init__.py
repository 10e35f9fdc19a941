"""Exporting an index or a model for other search engines and libraries."""
