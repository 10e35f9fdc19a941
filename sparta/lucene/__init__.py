"""The Java border: starting the JVM and calling Lucene."""

LUCENE_VERSION = "10.4.0"
"""The version of Lucene that writes indexes, as Pyserini has it; `java/build.sh` builds for it."""
