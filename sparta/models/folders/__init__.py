"""Folders of models that others made: the kinds of sparse models, and cross-encoders."""
