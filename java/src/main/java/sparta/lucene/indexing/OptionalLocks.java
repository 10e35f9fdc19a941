package sparta.lucene.indexing;

import java.io.IOException;
import java.nio.file.FileSystemException;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.Lock;
import org.apache.lucene.store.LockFactory;
import org.apache.lucene.store.LockObtainFailedException;
import org.apache.lucene.store.NativeFSLockFactory;
import org.apache.lucene.store.NoLockFactory;

/**
 * Lucene's locks where the file system has locks, and no locks elsewhere, like the index's lock in Python.
 *
 * <p>Java reports a failed lock call as a plain IOException, whose text depends on the language of the system. A disk
 * that fails at a lock also fails at the files that the writer opens next.
 */
public final class OptionalLocks extends LockFactory {
  private final LockFactory locks;

  /** Locks with the calls of the operating system. */
  public OptionalLocks() {
    this(NativeFSLockFactory.INSTANCE);
  }

  OptionalLocks(LockFactory locks) {
    this.locks = locks;
  }

  @Override
  public Lock obtainLock(Directory folder, String name) throws IOException {
    try {
      return locks.obtainLock(folder, name);
    } catch (LockObtainFailedException | FileSystemException held) { // another writer, or a file that cannot be made
      throw held;
    } catch (IOException unsupported) {
      return NoLockFactory.INSTANCE.obtainLock(folder, name);
    }
  }
}
