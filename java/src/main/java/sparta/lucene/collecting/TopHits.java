package sparta.lucene.collecting;

import java.io.IOException;
import java.util.Arrays;
import sparta.lucene.codec.RangeLayout;

/**
 * The best k hits seen so far: higher scores first, among equal scores the earlier corpus position.
 *
 * <p>Hits are gathered, and dropped when they are many and cannot be among the best any more. How good the k-th best is
 * can be told from time to time, by a selection; but as long as all scores are integers below {@link #LIMIT}, by
 * counting them, at any time. Corpus positions are looked up at the end.
 */
final class TopHits {
  /** Above all scores that can be counted. */
  static final int LIMIT = TopHitsCollector.COUNTED_LIMIT;

  private static final int SPARE = 16;
  private static final int SHORT_RUN = 24;

  private final int k;
  private final TopHitsCollector.Positions positions;

  /** Above the score, as an integer while they are counted, then as the bits of a float; below the docid. */
  private long[] hits;

  private int size;
  private float threshold = -1;

  /** Hits by score; null when they are not counted, for one of them had another score. */
  private int[] counts = new int[SPARE];

  /** Hits counted that are not below {@link #floor}, which is the k-th best score once there are as many. */
  private int counted;

  private int floor;

  TopHits(int k, TopHitsCollector.Positions positions) {
    this.k = k;
    this.positions = positions;
    hits = new long[(int) Math.min(2L * k + SPARE, 1024)];
  }

  /** What scores less cannot be among the best k; negative while anything can. */
  float threshold() {
    return threshold;
  }

  /** Takes a hit that is not below the threshold, with a docid above all before; whether the threshold has changed. */
  boolean add(int docid, float score) throws IOException {
    if (counts != null) {
      stopCounting();
    }
    makeRoom(1);
    hits[size++] = (long) Float.floatToRawIntBits(score) << 32 | docid;
    return size >= 2L * k + SPARE && select();
  }

  /**
   * Takes n hits of scores that can be counted, not below the threshold, with docids above all before.
   *
   * @param found scores above, docids below
   */
  void addCounted(long[] found, int n, int docBase) throws IOException {
    if (counts == null) {
      for (int i = 0; i < n; i++) {
        if (score(found[i]) >= threshold) {
          add(docBase + docid(found[i]), score(found[i]));
        }
      }
      return;
    }
    makeRoom(n);
    for (int i = 0; i < n; i++) {
      hits[size + i] = found[i] + docBase;
      int score = score(found[i]);
      if (score >= counts.length) {
        counts = Arrays.copyOf(counts, Math.min(LIMIT, 2 * Integer.highestOneBit(score)));
      }
      counts[score]++;
    }
    size += n;
    counted += n;
    while (counted - counts[floor] >= k) {
      counted -= counts[floor++];
    }
    if (counted >= k) {
      threshold = floor;
    }
  }

  /** Empties this into the result, best first. */
  HitList drain() throws IOException {
    if (counts != null) {
      stopCounting();
    } else if (size > k) {
      select();
    }
    long[] places = positions.of(docids());
    long[] order = new long[size];
    for (int i = 0; i < size; i++) {
      order[i] = ~hits[i] & 0xFFFF_FFFF_0000_0000L | i;
    }
    Arrays.sort(order);
    orderTies(order, places);
    int n = Math.min(k, size);
    HitList list = new HitList(new int[n], new float[n]);
    for (int i = 0; i < n; i++) {
      long hit = hits[(int) order[i]];
      list.docids()[i] = docid(hit);
      list.scores()[i] = Float.intBitsToFloat(score(hit));
    }
    size = 0;
    return list;
  }

  /** Brings runs of one score, of which each holds indices of hits, into the order of their positions. */
  private static void orderTies(long[] order, long[] places) {
    for (int from = 0; from < order.length; ) {
      int to = from + 1;
      while (to < order.length && order[to] >>> 32 == order[from] >>> 32) {
        to++;
      }
      if (to - from > SHORT_RUN) {
        orderRun(order, from, to, places);
      } else {
        insertionSort(order, from, to, places);
      }
      from = to;
    }
  }

  private static void insertionSort(long[] order, int from, int to, long[] places) {
    for (int i = from + 1; i < to; i++) {
      long moved = order[i];
      long place = places[(int) moved];
      int j = i;
      for (; j > from && places[(int) order[j - 1]] > place; j--) {
        order[j] = order[j - 1];
      }
      order[j] = moved;
    }
  }

  private static void orderRun(long[] order, int from, int to, long[] places) {
    record Placed(long entry, long place) {}
    Placed[] run = new Placed[to - from];
    for (int i = 0; i < run.length; i++) {
      run[i] = new Placed(order[from + i], places[(int) order[from + i]]);
    }
    Arrays.sort(run, (a, b) -> Long.compare(a.place, b.place)); // stable
    for (int i = 0; i < run.length; i++) {
      order[from + i] = run[i].entry;
    }
  }

  /** Makes room for n more hits, if need be by dropping what is of no use any more. */
  private void makeRoom(int n) throws IOException {
    if (size + n > hits.length && counts != null && counted >= k) {
      keepFrom(floor);
      if (size > 2L * k + RangeLayout.SIZE) {
        keepEarliest(floor);
        counted = size;
        counts[floor] = 0;
        for (int i = 0; i < size; i++) {
          counts[floor] += score(hits[i]) == floor ? 1 : 0;
        }
      }
    }
    if (size + n > hits.length) {
      hits = Arrays.copyOf(hits, (int) Math.min(Integer.MAX_VALUE - SPARE, Math.max(size + (long) n, 2L * size)));
    }
  }

  private void stopCounting() {
    if (counted >= k) {
      keepFrom(floor);
    }
    for (int i = 0; i < size; i++) {
      hits[i] = (long) Float.floatToRawIntBits(score(hits[i])) << 32 | docid(hits[i]);
    }
    counts = null;
  }

  /** Finds the k-th best score and drops what is below; whether the threshold has changed. */
  private boolean select() throws IOException {
    long[] copy = Arrays.copyOf(hits, size);
    Selection.largest(copy, size, k);
    int worst = Integer.MAX_VALUE;
    for (int i = 0; i < k; i++) {
      worst = Math.min(worst, score(copy[i]));
    }
    keepFrom(worst);
    if (size > k + k / 2) {
      keepEarliest(worst);
    }
    boolean changed = threshold < Float.intBitsToFloat(worst);
    threshold = Float.intBitsToFloat(worst);
    return changed;
  }

  /** Drops the hits below a score. */
  private void keepFrom(int worst) {
    int kept = 0;
    for (int i = 0; i < size; i++) {
      hits[kept] = hits[i];
      kept += score(hits[i]) >= worst ? 1 : 0;
    }
    size = kept;
  }

  /** Of the hits of the worst score keeps those of the earliest positions, so that k remain. */
  private void keepEarliest(int worst) throws IOException {
    long[] places = positions.of(docids());
    long[] tied = new long[size];
    int ties = 0;
    for (int i = 0; i < size; i++) {
      if (score(hits[i]) == worst) {
        tied[ties++] = places[i];
      }
    }
    Arrays.sort(tied, 0, ties);
    int wanted = k - (size - ties);
    long last = tied[wanted - 1];
    int atLast = wanted; // of several at the last place, those of the lower docids
    while (atLast > 0 && tied[atLast - 1] == last) {
      atLast--;
    }
    atLast = wanted - atLast;
    int kept = 0;
    for (int i = 0; i < size; i++) {
      boolean keep = score(hits[i]) > worst || places[i] < last || places[i] == last && atLast-- > 0;
      hits[kept] = hits[i];
      kept += keep ? 1 : 0;
    }
    size = kept;
  }

  private int[] docids() {
    int[] docids = new int[size];
    for (int i = 0; i < size; i++) {
      docids[i] = docid(hits[i]);
    }
    return docids;
  }

  private static int score(long hit) {
    return (int) (hit >>> 32);
  }

  private static int docid(long hit) {
    return (int) hit;
  }
}
