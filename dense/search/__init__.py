"""Stores vectors on disk, with exact and approximate search over them."""
