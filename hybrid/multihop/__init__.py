"""Chains of skills: search for evidence in several passages, step by step (Chain-of-Skills, §3.3)."""
