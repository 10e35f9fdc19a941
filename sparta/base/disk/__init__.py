"""Locks, folders that appear when they are complete, and input files as streams."""
