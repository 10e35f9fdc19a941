"""The formats of corpora: from files and objects to records."""
