package sparta.lucene;

import java.io.IOException;
import java.util.Arrays;

/**
 * The best k hits seen so far: higher scores first, among equal scores the earlier corpus position.
 *
 * <p>Hits are gathered in an array of about twice as many. When it is full, the k-th best score is found, and what lies
 * below it is dropped; so a hit costs a store, and now and then its share of a selection. Corpus positions are looked
 * up where they decide: among hits of one score.
 */
final class TopHits {
  /** Finds the corpus positions of docids. */
  interface Positions {
    long[] of(int[] docids) throws IOException;
  }

  private static final int SMALLEST = 16;

  private final int k;
  private final Positions positions;

  /** A score's bits above, which order as the scores do since none is negative; the docid below. */
  private long[] hits;

  private int size;
  private float threshold = -1;

  TopHits(int k, Positions positions) {
    this.k = k;
    this.positions = positions;
    hits = new long[Math.min(limit(), 1024)];
  }

  /** What scores less cannot be among the best k any more; negative while anything can. */
  float threshold() {
    return threshold;
  }

  /** Takes a hit that is not below the threshold; whether the threshold has changed. */
  boolean add(int docid, float score) throws IOException {
    if (size == hits.length) {
      hits = Arrays.copyOf(hits, (int) Math.min(limit(), size * 2L));
    }
    hits[size++] = (long) Float.floatToRawIntBits(score) << 32 | docid;
    return size == limit() && prune();
  }

  /** Empties this into the result, best first. */
  HitList drain() throws IOException {
    if (size > k) {
      prune();
      resolve();
    }
    Arrays.sort(hits, 0, size);
    reverse(0, size);
    orderTies();
    HitList list = new HitList(new int[size], new float[size]);
    for (int i = 0; i < size; i++) {
      list.docids()[i] = docid(hits[i]);
      list.scores()[i] = score(hits[i]);
    }
    size = 0;
    return list;
  }

  private int limit() {
    return (int) Math.min(2L * k + SMALLEST, Integer.MAX_VALUE - SMALLEST);
  }

  private boolean prune() throws IOException {
    float before = threshold;
    Selection.largest(hits, size, k);
    float worst = Float.POSITIVE_INFINITY;
    for (int i = 0; i < k; i++) {
      worst = Math.min(worst, score(hits[i]));
    }
    int kept = k;
    for (int i = k; i < size; i++) {
      if (score(hits[i]) == worst) {
        hits[kept++] = hits[i];
      }
    }
    size = kept;
    threshold = worst;
    if (size > k + k / 2) {
      resolve();
    }
    return threshold > before;
  }

  /** Of the hits at the threshold keeps those of the earliest positions, so that k remain. */
  private void resolve() throws IOException {
    int better = 0;
    for (int i = 0; i < size; i++) {
      if (score(hits[i]) > threshold) {
        long hit = hits[i];
        hits[i] = hits[better];
        hits[better++] = hit;
      }
    }
    orderByPosition(better, size, positions.of(docids(better, size)), 0);
    size = k;
  }

  /** Brings runs of one score, in which the docids descend, into the order of their positions. */
  private void orderTies() throws IOException {
    boolean[] tied = new boolean[size + 1];
    int ties = 0;
    for (int i = 1; i < size; i++) {
      tied[i] = score(hits[i]) == score(hits[i - 1]);
      ties += tied[i] ? tied[i - 1] ? 1 : 2 : 0;
    }
    int[] docids = new int[ties];
    int n = 0;
    for (int i = 0; i < size; i++) {
      if (tied[i] || tied[i + 1]) {
        docids[n++] = docid(hits[i]);
      }
    }
    if (n == 0) {
      return;
    }
    long[] places = positions.of(docids);
    int start = 0;
    for (int i = 0; i < size; ) {
      int end = i + 1;
      while (tied[end]) {
        end++;
      }
      if (end > i + 1) {
        orderByPosition(i, end, places, start);
        start += end - i;
      }
      i = end;
    }
  }

  /** Orders hits [from, to), whose positions begin at {@code start} in {@code places}. */
  private void orderByPosition(int from, int to, long[] places, int start) {
    if (descends(places, start, to - from)) {
      reverse(from, to);
      return;
    }
    record Placed(long position, long hit) {}
    Placed[] placed = new Placed[to - from];
    for (int i = 0; i < placed.length; i++) {
      placed[i] = new Placed(places[start + i], hits[from + i]);
    }
    Arrays.sort(
        placed,
        (a, b) -> a.position != b.position ? Long.compare(a.position, b.position) : Long.compare(a.hit, b.hit));
    for (int i = 0; i < placed.length; i++) {
      hits[from + i] = placed[i].hit;
    }
  }

  private static boolean descends(long[] values, int start, int n) {
    for (int i = start + 1; i < start + n; i++) {
      if (values[i] >= values[i - 1]) {
        return false;
      }
    }
    return true;
  }

  private void reverse(int from, int to) {
    for (int i = from, j = to - 1; i < j; i++, j--) {
      long hit = hits[i];
      hits[i] = hits[j];
      hits[j] = hit;
    }
  }

  private int[] docids(int from, int to) {
    int[] docids = new int[to - from];
    for (int i = 0; i < docids.length; i++) {
      docids[i] = docid(hits[from + i]);
    }
    return docids;
  }

  private static float score(long hit) {
    return Float.intBitsToFloat((int) (hit >>> 32));
  }

  private static int docid(long hit) {
    return (int) hit;
  }
}
