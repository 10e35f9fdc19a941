package sparta.lucene.scoring;

import java.util.concurrent.BlockingDeque;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.function.Supplier;

/**
 * Things that are costly to make and were given back, for whichever thread needs one next.
 *
 * <p>As many are kept as threads can compute at once, and none by a thread: threads come and go, and what a thread
 * holds is there as long as Java knows of it.
 */
final class ObjectPool<T> {
  private final BlockingDeque<T> kept = new LinkedBlockingDeque<>(Runtime.getRuntime().availableProcessors() + 1);
  private final Supplier<T> maker;

  ObjectPool(Supplier<T> maker) {
    this.maker = maker;
  }

  /** Takes what was given back last, else a new one. */
  T take() {
    T spare = kept.pollFirst();
    return spare == null ? maker.get() : spare;
  }

  /** Keeps it, if there is room. */
  void giveBack(T one) {
    kept.offerFirst(one);
  }
}
