"""Locks, folders that appear when they are complete, input files as streams, and unsupported formats."""
