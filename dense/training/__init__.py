"""Training bi-encoders, and mining hard negatives."""
