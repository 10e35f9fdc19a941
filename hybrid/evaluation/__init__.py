"""Test sets, measures, comparisons, tuning."""
