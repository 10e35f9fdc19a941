"""Evaluates rankings and answers: test sets, measures, comparisons and tuning."""
