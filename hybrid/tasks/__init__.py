"""Tasks of KILT: retrievers measured on all of them, trained without one, and what is done with passages."""
