"""Chains of skills: evidence from several passages, found step by step (Chain-of-Skills, §3.3)."""
