"""Start Java and call Lucene."""

LUCENE_VERSION = "10.4.0"
"""The version of Lucene that writes indexes: Pyserini's version, and the one `java/build.sh` builds for."""
