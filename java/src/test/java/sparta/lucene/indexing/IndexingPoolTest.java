package sparta.lucene.indexing;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import sparta.lucene.util.StringTable;

class IndexingPoolTest {
  @Test
  void theFirstFailureOfAThreadIsThrownFromThenOn() throws IOException {
    RuntimeException first = new RuntimeException("the disk is full");
    AtomicInteger indexed = new AtomicInteger();
    IndexingPool pool =
        new IndexingPool(
            3,
            (fields, batch, document) -> {
              if (indexed.incrementAndGet() >= 500) {
                throw indexed.get() == 500 ? first : new RuntimeException("a later one");
              }
            });
    String[] names = new String[100_000];
    Arrays.fill(names, "x");
    byte[] table = StringTable.of(names);
    StringTable strings = StringTable.unpack(table, "strings");
    DocumentBatch batch =
        new DocumentBatch(
            strings,
            strings,
            strings,
            new long[names.length],
            new int[names.length + 1],
            new int[0],
            new int[0],
            StringTable.unpack(StringTable.of(), "own terms"),
            StringTable.unpack(StringTable.of(), "values"),
            new int[names.length + 1],
            new Vocabulary().view());
    IOException atSubmit = assertThrows(IOException.class, () -> pool.submit(batch, 0, batch.size()));
    IOException atDrain = assertThrows(IOException.class, pool::drain);
    assertSame(atSubmit.getCause(), atDrain.getCause());
    assertTrue(atDrain.getMessage().startsWith("indexing failed: "), atDrain.getMessage());
    pool.stop();
    assertTrue(indexed.get() < 10_000, "what was queued after the failure is dropped");
  }
}
