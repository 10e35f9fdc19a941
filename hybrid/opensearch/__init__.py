"""An index in OpenSearch: as files or pushed there, kept up to date, searched with the same rankings."""
