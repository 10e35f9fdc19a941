package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
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

  @Test
  void aCommitStaysReadableAfterItsFilesAreRemoved() throws IOException {
    Directory directory = FSDirectory.open(folder);
    try (var writer = new IndexWriter(directory, new IndexWriterConfig())) {
      for (String text : List.of("moon", "sun")) {
        var document = new Document();
        document.add(new TextField("text", text, Field.Store.YES));
        writer.addDocument(document);
        writer.commit();
      }
    }
    try (directory; var commit = new IndexCheck.OpenCommit(directory)) {
      for (String name : directory.listAll()) {
        Files.delete(folder.resolve(name));
      }
      assertEquals("", IndexCheck.check(commit));
    }
  }
}
