package sparta.lucene.indexing;

import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.Lock;
import org.apache.lucene.store.LockFactory;
import org.apache.lucene.store.LockObtainFailedException;
import org.junit.jupiter.api.Test;

class OptionalLocksTest {
  private static Lock obtain(IOException failure) throws IOException {
    LockFactory failing =
        new LockFactory() {
          @Override
          public Lock obtainLock(Directory folder, String name) throws IOException {
            throw failure;
          }
        };
    try (Directory folder = new ByteBuffersDirectory()) {
      return new OptionalLocks(failing).obtainLock(folder, "write.lock");
    }
  }

  @Test
  void aFileSystemWithoutLocksIsWrittenWithoutLocks() throws IOException {
    try (Lock lock = obtain(new IOException("No locks available"))) {
      lock.ensureValid();
    }
  }

  @Test
  void aLockOfAnotherWriterAndAFileThatCannotBeMadeAreErrors() {
    for (IOException failure :
        new IOException[] {new LockObtainFailedException("held"), new AccessDeniedException("write.lock")}) {
      assertSame(failure, assertThrows(IOException.class, () -> obtain(failure)));
    }
  }
}
