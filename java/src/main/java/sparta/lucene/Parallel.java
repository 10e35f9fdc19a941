package sparta.lucene;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/** Runs independent tasks in a few threads. */
final class Parallel {
  /** Does the i-th task. */
  interface Task {
    void run(int i) throws IOException;
  }

  private Parallel() {}

  /** Runs tasks 0 to n−1 in at most {@code threads} threads, this one among them; throws the first failure. */
  static void run(int n, int threads, Task task) throws IOException {
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
    Thread[] helpers = new Thread[Math.max(0, Math.min(threads, n) - 1)];
    for (int i = 0; i < helpers.length; i++) {
      helpers[i] = new Thread(work, "sparta-" + i);
      helpers[i].setDaemon(true);
      helpers[i].start();
    }
    work.run();
    join(helpers);
    rethrow(failure.get());
  }

  private static void join(Thread[] threads) throws IOException {
    try {
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while waiting for the other threads", e);
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
