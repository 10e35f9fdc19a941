package sparta.lucene;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.lucene.index.CheckIndex;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexNotFoundException;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.SegmentInfos;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.store.FilterDirectory;
import org.apache.lucene.store.IOContext;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.store.NoLockFactory;
import org.apache.lucene.util.IOUtils;

/** Tells whether the files of an index are as they were written. */
public final class IndexCheck {
  /** Reading so many bytes costs little beside opening an index. */
  private static final long SMALL = 64L << 20;

  private IndexCheck() {}

  /**
   * Checks the last commit with Lucene's CheckIndex: the checksum of every file, and that the parts of each segment
   * agree. Nothing is locked or written. A writer may commit meanwhile.
   *
   * @return what is wrong, in Lucene's words; empty when nothing is
   */
  public static String check(String dir) throws IOException {
    if (!Files.isDirectory(Path.of(dir))) {
      throw new IndexNotFoundException("no folder " + dir); // Lucene would create it
    }
    try (Directory folder = FSDirectory.open(Path.of(dir)); Directory commit = new OpenCommit(folder)) {
      return check(commit);
    }
  }

  static String check(Directory directory) throws IOException {
    var said = new ByteArrayOutputStream();
    try (CheckIndex check = new CheckIndex(directory, NoLockFactory.INSTANCE.obtainLock(directory, "check"));
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

  /** All files of the last commit, opened at once: they stay readable after a writer removes them. */
  static final class OpenCommit extends FilterDirectory {
    private final Map<String, IndexInput> files = new TreeMap<>();

    OpenCommit(Directory folder) throws IOException {
      super(folder);
      try {
        for (String name : SegmentInfos.readLatestCommit(folder).files(true)) {
          files.put(name, folder.openInput(name, IOContext.DEFAULT));
        }
      } catch (IOException | RuntimeException failed) {
        IOUtils.closeWhileHandlingException(files.values());
        throw failed;
      }
    }

    private IndexInput file(String name) throws NoSuchFileException {
      IndexInput file = files.get(name);
      if (file == null) {
        throw new NoSuchFileException(name);
      }
      return file;
    }

    @Override
    public String[] listAll() {
      return files.keySet().toArray(String[]::new);
    }

    @Override
    public long fileLength(String name) throws IOException {
      return file(name).length();
    }

    @Override
    public IndexInput openInput(String name, IOContext context) throws IOException {
      return file(name).clone();
    }

    @Override
    public void close() throws IOException {
      IOUtils.close(files.values());
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
