"""Locks, and folders that appear when they are complete."""
