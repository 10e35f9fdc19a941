package sparta.lucene;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.logging.LogManager;

/**
 * Java's logging as a command-line tool wants it; named to the runtime by {@code java.util.logging.config.class}.
 *
 * <p>Warnings go to standard error, but not Lucene's advice to enable a module for vector arithmetic, which postings
 * do not use.
 */
public final class QuietLogging {
  private static final String SETTINGS =
      """
      handlers = java.util.logging.ConsoleHandler
      .level = WARNING
      org.apache.lucene.internal.vectorization.level = SEVERE
      """;

  /** Called by {@link LogManager}. */
  public QuietLogging() throws IOException {
    LogManager.getLogManager()
        .readConfiguration(new ByteArrayInputStream(SETTINGS.getBytes(StandardCharsets.UTF_8)));
  }
}
