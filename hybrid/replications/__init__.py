"""What only the tables of papers need: tasks, models trained for them, readers of paths, hyperlinks."""
