"""The index folder: building, appending, updating, deleting."""
