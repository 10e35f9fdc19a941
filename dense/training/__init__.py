"""Trains bi-encoders, and mines hard negatives."""
