"""Searching several channels and fusing their rankings."""
