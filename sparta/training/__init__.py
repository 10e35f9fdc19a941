"""Training on questions and the passages that answer them."""
