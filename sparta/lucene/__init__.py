"""The Java border: starting the JVM and calling Lucene."""
