"""Dense retrieval: encoders that turn questions and passages into vectors."""
