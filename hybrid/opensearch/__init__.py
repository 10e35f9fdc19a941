"""An index in OpenSearch: pushed there, kept up to date, searched with the rankings of one machine."""
