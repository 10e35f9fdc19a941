"""Copies of an index for other machines: backups, and folders on a model hub."""
