"""Runs transformer encoders on a CPU without torch: weights, graphs, 8-bit arithmetic (OpenVINO)."""
