"""Folders of sparse models: their kinds, and reading them."""
