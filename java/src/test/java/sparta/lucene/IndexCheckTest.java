package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A folder that is written while it is looked at. */
class IndexCheckTest {
  @TempDir Path folder;

  @Test
  void aFileThatWasRemovedSinceItWasListedCountsNothing() throws IOException {
    Path kept = Files.write(folder.resolve("_0.cfs"), new byte[5]);
    Path removed = folder.resolve("_1.cfs");
    assertEquals(5, IndexCheck.sizeOf(List.of(removed, kept, folder)));
  }
}
