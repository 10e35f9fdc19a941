package sparta.lucene.indexing;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/**
 * Threads that index slices of batches from a bounded queue.
 *
 * <p>The first failure is kept: from then on slices are dropped unread, and {@link #submit}, {@link #drain} and
 * {@link #check} throw it, with its cause. One thread submits; the failure may come from any.
 */
public final class IndexingPool {
  /** Indexes one document of a batch, with fields that belong to the calling thread. */
  public interface Indexer {
    void index(ImpactDocument fields, DocumentBatch batch, int document) throws IOException;
  }

  private static final int SLICE = 64;
  private static final int SLICES_PER_THREAD = 8;

  private record Slice(DocumentBatch batch, int from, int to) {}

  private static final Slice STOP = new Slice(null, 0, 0);

  private final Indexer indexer;
  private final BlockingQueue<Slice> queue;
  private final List<Thread> threads = new ArrayList<>();
  private final Object progress = new Object();
  private int pending;
  private volatile Throwable failure;
  private volatile boolean discarding;

  public IndexingPool(int threadCount, Indexer indexer) throws IOException {
    this.indexer = indexer;
    queue = new ArrayBlockingQueue<>(threadCount * SLICES_PER_THREAD);
    try {
      for (int i = 0; i < threadCount; i++) {
        Thread thread = new Thread(this::work, "sparta-index-" + i);
        thread.setDaemon(true);
        thread.start();
        threads.add(thread);
      }
    } catch (Throwable e) {
      stop(); // those that were started
      throw e;
    }
  }

  /** Queues the documents [from, to) of the batch; waits while the queue is full. */
  public void submit(DocumentBatch batch, int from, int to) throws IOException {
    for (int start = from; start < to; start += SLICE) {
      check();
      put(new Slice(batch, start, Math.min(to, start + SLICE)));
    }
  }

  /** Waits until every queued document is indexed. */
  public void drain() throws IOException {
    try {
      synchronized (progress) {
        while (pending > 0) {
          progress.wait();
        }
      }
    } catch (InterruptedException e) {
      throw interrupted(e);
    }
    check();
  }

  /** Throws the first failure, if there has been one. */
  public void check() throws IOException {
    Throwable first = failure;
    if (first != null) {
      throw new IOException("indexing failed: " + first, first);
    }
  }

  /** Keeps the failure, unless an earlier one is kept already. */
  public void fail(Throwable thrown) {
    synchronized (progress) {
      if (failure == null) {
        failure = thrown;
      }
    }
  }

  /** Drops what is queued and ends the threads; the document that each is at is finished first. */
  public void stop() throws IOException {
    discarding = true;
    for (int i = 0; i < threads.size(); i++) {
      put(STOP);
    }
    try {
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException e) {
      throw interrupted(e);
    }
  }

  private void put(Slice slice) throws IOException {
    synchronized (progress) {
      pending++;
    }
    try {
      queue.put(slice);
    } catch (InterruptedException e) {
      done();
      throw interrupted(e);
    }
  }

  private void done() {
    synchronized (progress) {
      pending--;
      progress.notifyAll();
    }
  }

  private void work() {
    ImpactDocument fields = new ImpactDocument();
    Slice slice = null;
    while (slice != STOP) {
      try {
        slice = queue.take();
        for (int i = slice.from; i < slice.to && failure == null && !discarding; i++) {
          indexer.index(fields, slice.batch, i);
        }
      } catch (Throwable thrown) {
        fail(thrown);
      } finally {
        done();
      }
    }
  }

  private static IOException interrupted(InterruptedException e) {
    Thread.currentThread().interrupt();
    return new IOException("interrupted while waiting for the indexing threads", e);
  }
}
