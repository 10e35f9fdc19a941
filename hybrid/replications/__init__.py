"""Code that only the papers' experiments need: tasks, their models, path readers, hyperlinks."""
