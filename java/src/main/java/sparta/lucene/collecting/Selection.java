package sparta.lucene.collecting;

import java.util.Arrays;

/** Partial sorting. */
final class Selection {
  private static final int SMALL = 24;

  private Selection() {}

  /** Moves the k largest of the first n values, which are distinct, to the front, in no order. */
  static void largest(long[] values, int n, int k) {
    int from = 0;
    int to = n;
    int rounds = 2 * (32 - Integer.numberOfLeadingZeros(n));
    // All before from belong to the front, all from to on do not.
    while (to - from > SMALL && from < k && k < to && rounds-- > 0) {
      long pivot = median(values[from], values[from + to >>> 1], values[to - 1]);
      int middle = partition(values, from, to, pivot);
      if (middle <= k) {
        from = middle;
      } else {
        to = middle;
      }
    }
    if (from < k && k < to) {
      Arrays.sort(values, from, to);
      for (int i = from, j = to - 1; i < j; i++, j--) {
        long value = values[i];
        values[i] = values[j];
        values[j] = value;
      }
    }
  }

  /** Moves what is at least the pivot in front of what is less; where that begins. Both parts have something. */
  private static int partition(long[] values, int from, int to, long pivot) {
    int i = from - 1;
    int j = to;
    while (true) {
      do {
        i++;
      } while (values[i] > pivot);
      do {
        j--;
      } while (values[j] < pivot);
      if (i >= j) {
        return j + 1;
      }
      long value = values[i];
      values[i] = values[j];
      values[j] = value;
    }
  }

  private static long median(long a, long b, long c) {
    return Math.max(Math.min(a, b), Math.min(Math.max(a, b), c));
  }
}
