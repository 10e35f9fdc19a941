package sparta.lucene.util;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Runs independent tasks in a few threads. */
public final class Parallel {
  /** Does the i-th task. */
  public interface Task {
    void run(int i) throws IOException;
  }

  /** Threads wait for more work for a minute: to begin one takes longer than many a search. */
  private static final ExecutorService HELPERS =
      Executors.newCachedThreadPool(
          work -> {
            Thread thread = new Thread(work, "sparta-search");
            thread.setDaemon(true);
            return thread;
          });

  private Parallel() {}

  /** Runs tasks 0 to n−1 in at most {@code threads} threads, this one among them; throws the first failure. */
  public static void run(int n, int threads, Task task) throws IOException {
    if (threads < 1) {
      throw new IllegalArgumentException("threads must be 1 or more, found " + threads);
    }
    AtomicInteger next = new AtomicInteger();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Runnable work =
        () -> {
          try {
            for (int i = next.getAndIncrement(); i < n && failure.get() == null; i = next.getAndIncrement()) {
              task.run(i);
            }
          } catch (Throwable thrown) {
            failure.compareAndSet(null, thrown);
          }
        };
    List<Future<?>> helpers = new ArrayList<>();
    for (int i = 1; i < Math.min(threads, n); i++) {
      helpers.add(HELPERS.submit(work));
    }
    work.run();
    join(helpers, failure);
    rethrow(failure.get());
  }

  private static void join(List<Future<?>> helpers, AtomicReference<Throwable> failure)
      throws IOException {
    try {
      for (Future<?> helper : helpers) {
        helper.get();
      }
    } catch (InterruptedException e) {
      failure.compareAndSet(null, e); // the helpers take no more tasks
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while waiting for the other threads", e);
    } catch (ExecutionException e) {
      throw new IOException(e.getCause()); // what a task throws is kept as the failure
    }
  }

  private static void rethrow(Throwable failure) throws IOException {
    switch (failure) {
      case null -> {}
      case IOException e -> throw e;
      case RuntimeException e -> throw e;
      case Error e -> throw e;
      default -> throw new IOException(failure);
    }
  }
}
