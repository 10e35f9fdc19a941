"""Backends, which compute the term weights of passages: OpenVINO on CPUs, torch on GPUs."""
