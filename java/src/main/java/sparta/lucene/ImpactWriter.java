package sparta.lucene;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.index.ConcurrentMergeScheduler;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.codec.ImpactCodec;
import sparta.lucene.indexing.DocumentBatch;
import sparta.lucene.indexing.ImpactDocument;
import sparta.lucene.indexing.IndexingPool;
import sparta.lucene.indexing.OptionalLocks;
import sparta.lucene.indexing.PendingImpacts;
import sparta.lucene.indexing.PendingImpactsCodec;
import sparta.lucene.indexing.Vocabulary;
import sparta.lucene.scoring.ImpactSimilarity;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.Packed;
import sparta.lucene.util.Parallel;
import sparta.lucene.util.StringTable;

/**
 * Writes batches of passages with their impacts into one index folder.
 *
 * <p>Documents are indexed by threads of the writer's own. A failure in one of them is thrown, with its cause, at the
 * next call, and at every call after it: nothing is committed any more, and what the last commit holds stays. Nothing
 * but {@link #commit} makes changes last. A second writer on the same folder is refused by Lucene's lock, if the file
 * system has locks.
 *
 * <p>Calls may come from any thread, one at a time.
 */
public final class ImpactWriter implements Closeable {
  /** More than any machine has use for. */
  private static final int MOST_THREADS = 1024;

  private final Directory directory;
  private final IndexWriter writer;
  private final IndexingPool pool;
  private final Vocabulary vocabulary = new Vocabulary();
  private final PendingImpacts pending = new PendingImpacts();
  private final AtomicBoolean flushing = new AtomicBoolean();
  private final int threads;
  private final long budget;

  private boolean closed;

  /**
   * Creates the index in Lucene's format, or opens what its last commit left.
   *
   * @param dir the index folder
   * @param analyzer names the analysis of the text, see {@link Analyzers}
   * @param threads indexing threads, at least 1
   * @param ramBufferMb memory for impacts before they are flushed to a segment, and as much for everything else
   */
  public ImpactWriter(String dir, String analyzer, int threads, int ramBufferMb) throws IOException {
    this(dir, analyzer, threads, ramBufferMb, "lucene");
  }

  /**
   * Creates the index, or opens what its last commit left.
   *
   * @param codec what new segments are written with, see {@link ImpactCodec#of}; older ones stay as they are until
   *     they are merged
   */
  public ImpactWriter(String dir, String analyzer, int threads, int ramBufferMb, String codec) throws IOException {
    if (threads < 1 || threads > MOST_THREADS || ramBufferMb < 1) {
      throw new IllegalArgumentException(
          "threads must be 1 to %d and ramBufferMb 1 or more, found %d and %d"
              .formatted(MOST_THREADS, threads, ramBufferMb));
    }
    this.threads = threads;
    budget = (long) ramBufferMb << 20;
    IndexWriterConfig config =
        config(Analyzers.of(analyzer), ramBufferMb)
            .setCodec(new PendingImpactsCodec(ImpactCodec.of(codec), pending));
    directory = FSDirectory.open(Path.of(dir), new OptionalLocks());
    IndexWriter opened = null;
    try {
      opened = new IndexWriter(directory, config);
      pool = new IndexingPool(threads, this::index);
    } catch (Throwable e) {
      try (directory;
          Closeable lucene = opened == null ? null : opened::rollback) {
        throw e;
      }
    }
    writer = opened;
  }

  /** Appends the terms of a string table to the vocabulary; their ids count on from 0. */
  public synchronized void addTerms(byte[] table) throws IOException {
    checkUsable();
    vocabulary.append(StringTable.unpack(table, "terms"));
    pending.know(vocabulary.view());
  }

  /**
   * Queues a batch, waiting while the queue is full. The batch is checked as a whole before anything is queued.
   *
   * @param ids string table: passage ids
   * @param raws string table: records to store
   * @param texts string table: texts for BM25
   * @param positions int64 per document: its place in the corpus
   * @param indptr int32 per document and one more: its postings are [indptr[i], indptr[i+1])
   * @param terms int32 per posting: id of a term of the vocabulary, or of the batch's own. A term given twice in a document counts with the sum
   * @param impacts int32 per posting, 1 or more
   * @param ownTerms string table: terms that only this batch knows by number; their ids follow the vocabulary's
   * @param values string table: metadata as terms {@code name 0 value}, of all documents one after the other
   * @param firstValues int32 per document and one more: its values are [firstValues[i], firstValues[i+1])
   * @param update whether each document first replaces those with the same id; of several with one id in a batch
   *     the last remains
   */
  public synchronized void add(
      byte[] ids,
      byte[] raws,
      byte[] texts,
      byte[] positions,
      byte[] indptr,
      byte[] terms,
      byte[] impacts,
      byte[] ownTerms,
      byte[] values,
      byte[] firstValues,
      boolean update)
      throws IOException {
    checkUsable();
    DocumentBatch batch =
        new DocumentBatch(
            StringTable.unpack(ids, "ids"),
            StringTable.unpack(raws, "raws"),
            StringTable.unpack(texts, "texts"),
            Packed.longs(positions, "positions"),
            Packed.ints(indptr, "indptr"),
            Packed.ints(terms, "terms"),
            Packed.ints(impacts, "impacts"),
            StringTable.unpack(ownTerms, "own terms"),
            StringTable.unpack(values, "fields"),
            Packed.ints(firstValues, "ends of the fields"),
            vocabulary.view());
    if (update) {
      replace(batch);
    } else {
      pool.submit(batch, 0, batch.size());
    }
  }

  /**
   * Deletes passages by id.
   *
   * @param ids string table
   * @return the number of documents that matched
   */
  public synchronized int delete(byte[] ids) throws IOException {
    checkUsable();
    Set<BytesRef> distinct = distinct(ids);
    pool.drain();
    int matched = 0;
    try (DirectoryReader reader = DirectoryReader.open(writer)) {
      Lookup lookup = new Lookup(reader);
      for (BytesRef id : distinct) {
        matched += lookup.count(id);
      }
    }
    deleteDocuments(distinct);
    return matched;
  }

  /**
   * Deletes passages by id, and does not count them: a count opens a reader, which flushes what is buffered.
   *
   * @param ids string table
   */
  public synchronized void remove(byte[] ids) throws IOException {
    checkUsable();
    Set<BytesRef> distinct = distinct(ids);
    pool.drain();
    deleteDocuments(distinct);
  }

  /** Waits for the queue, then makes everything last, together with {@code userData}. */
  public synchronized void commit(String userData) throws IOException {
    checkUsable();
    pool.drain();
    flush();
    writer.setLiveCommitData(Map.of(ImpactSearcher.USER_DATA, userData).entrySet());
    writer.commit();
    pool.check();
  }

  /** Waits for the queue, then merges down to at most this many segments; lasts from the next commit on. */
  public synchronized void forceMerge(int segments) throws IOException {
    checkUsable();
    pool.drain();
    writer.forceMerge(segments);
    pool.check();
  }

  /** Forgets everything since the last commit and lets go of the folder. */
  public synchronized void rollback() throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    try (directory;
        Closeable lucene = writer::rollback) {
      pool.stop();
    } finally {
      pending.clear(); // pyjnius may hold a closed writer until the next one is used
    }
  }

  /** How much memory the impacts take that are not yet in a segment. */
  long pendingBytes() {
    return pending.bytes();
  }

  /** Lets go of the folder; commits nothing. */
  @Override
  public void close() throws IOException {
    rollback();
  }

  /** Indexes one document, in a thread of the pool; a full buffer is emptied by one thread while others go on. */
  private void index(ImpactDocument fields, DocumentBatch batch, int document) throws IOException {
    writer.addDocument(fields.set(batch, document, pending));
    long waiting = pending.bytes();
    if (waiting > 2 * budget) {
      writer.flushNextBuffer();
    } else if (waiting > budget && flushing.compareAndSet(false, true)) {
      try {
        writer.flushNextBuffer();
      } finally {
        flushing.set(false);
      }
    }
  }

  /** Empties the buffers of all threads, one buffer a thread; Lucene's commit does it in the calling thread alone. */
  private void flush() throws IOException {
    Parallel.run(
        threads,
        threads,
        i -> {
          while (writer.flushNextBuffer()) {}
        });
  }

  private IndexWriterConfig config(Analyzer analyzer, int ramBufferMb) {
    return new IndexWriterConfig(analyzer)
        .setOpenMode(IndexWriterConfig.OpenMode.CREATE_OR_APPEND)
        .setCommitOnClose(false)
        .setRAMBufferSizeMB(ramBufferMb)
        .setSimilarity(ImpactSimilarity.perField(ImpactSimilarity.K1, ImpactSimilarity.B))
        .setMergeScheduler(new Merges());
  }

  /**
   * Deletes the ids of the batch here, in this thread and after everything queued before, then queues the documents:
   * so no thread can overtake another with the same passage.
   */
  private void replace(DocumentBatch batch) throws IOException {
    Map<BytesRef, Integer> last = new HashMap<>();
    for (int i = 0; i < batch.size(); i++) {
      last.put(batch.id(i), i);
    }
    pool.drain();
    deleteDocuments(last.keySet());
    if (last.size() == batch.size()) {
      pool.submit(batch, 0, batch.size());
      return;
    }
    for (int i = 0; i < batch.size(); i++) {
      if (last.get(batch.id(i)) == i) {
        pool.submit(batch, i, i + 1);
      }
    }
  }

  private static Set<BytesRef> distinct(byte[] ids) {
    Set<BytesRef> distinct = new HashSet<>();
    StringTable.unpack(ids, "ids").forEach(distinct::add);
    return distinct;
  }

  private void deleteDocuments(Set<BytesRef> ids) throws IOException {
    for (BytesRef id : ids) {
      writer.deleteDocuments(new Term(IndexFields.ID, id));
    }
  }

  private void checkUsable() throws IOException {
    if (closed) {
      throw new IllegalStateException("this writer is closed");
    }
    pool.check();
  }

  /** Merges in the background; a failing one (a full disk, most likely) fails the writer. */
  private final class Merges extends ConcurrentMergeScheduler {
    @Override
    protected void handleMergeException(Throwable thrown) {
      pool.fail(thrown);
    }
  }
}
