"""Vectors on disk, and exact and approximate search over them."""
