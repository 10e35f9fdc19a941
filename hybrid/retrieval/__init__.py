"""Searches several channels of an index and fuses their rankings."""
