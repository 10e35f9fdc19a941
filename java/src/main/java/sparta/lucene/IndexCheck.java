package sparta.lucene;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.stream.Stream;
import org.apache.lucene.index.CheckIndex;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.store.NoLockFactory;

/** Tells whether the files of an index are as they were written. */
public final class IndexCheck {
  /** Reading so many bytes costs little beside opening an index. */
  private static final long SMALL = 64L << 20;

  private IndexCheck() {}

  /**
   * Checks the last commit with Lucene's CheckIndex: the checksum of every file, and that the parts of each segment
   * agree. Nothing is locked or written.
   *
   * @return what is wrong, in Lucene's words; empty when nothing is
   */
  public static String check(String dir) throws IOException {
    var said = new ByteArrayOutputStream();
    try (Directory directory = FSDirectory.open(Path.of(dir));
        CheckIndex check = new CheckIndex(directory, NoLockFactory.INSTANCE.obtainLock(directory, "check"));
        PrintStream lines = new PrintStream(said, false, StandardCharsets.UTF_8)) {
      check.setInfoStream(lines, false);
      check.setLevel(CheckIndex.Level.MIN_LEVEL_FOR_INTEGRITY_CHECKS); // the default compares checksums only
      if (check.checkIndex().clean) {
        return "";
      }
    }
    try (Stream<String> lines = said.toString(StandardCharsets.UTF_8).lines()) {
      return lines.map(String::strip).filter(line -> line.contains("Exception") || line.contains("FAILED") || line.contains("ERROR"))
          .findFirst().orElse("CheckIndex found a broken segment");
    }
  }

  /** Compares the checksums of a small index, which costs milliseconds; those of a large one are left to {@link #check}. */
  static void checkIfSmall(DirectoryReader reader, Path folder) throws IOException {
    long size;
    try (Stream<Path> files = Files.list(folder)) {
      size = sizeOf(files::iterator);
    }
    if (size <= SMALL) {
      for (LeafReaderContext leaf : reader.leaves()) {
        if (leaf.reader() instanceof CodecReader segment) {
          segment.checkIntegrity();
        }
      }
    }
  }

  /** The bytes of all that are files; one that a writer removed after it was listed counts nothing. */
  static long sizeOf(Iterable<Path> listed) throws IOException {
    long size = 0;
    for (Path file : listed) {
      try {
        var facts = Files.readAttributes(file, BasicFileAttributes.class);
        size += facts.isRegularFile() ? facts.size() : 0;
      } catch (NoSuchFileException removed) {
        continue;
      }
    }
    return size;
  }
}
