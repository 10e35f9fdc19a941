package sparta.lucene.scoring;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;
import sparta.lucene.codec.ImpactLists;
import sparta.lucene.codec.RangeLayout;
import sparta.lucene.codec.TermRanges;

/** Integer sums that are too large for {@link LaneSums}, below 2^24: a float32, as which Lucene takes scores, has them. */
final class IntSums implements RangeSums {
  /** Above every sum. */
  static final int LIMIT = 1 << 24;

  /** Documents that are left out together. */
  private static final int CHUNK = 1024;

  private final int[] sums = new int[RangeLayout.SIZE];
  private final long[] column = new long[RangeLayout.STRIDE];
  private final byte[] data = new byte[RangeLayout.MOST_BYTES];

  private static final ObjectPool<IntSums> SPARES = new ObjectPool<>(IntSums::new);

  private IntSums() {}

  /** Takes sums that were given back, else new ones. */
  static IntSums take() {
    return SPARES.take();
  }

  @Override
  public void giveBack() {
    SPARES.giveBack(this);
  }

  @Override
  public void clear() {
    Arrays.fill(sums, 0);
  }

  @Override
  public boolean reach(long more, int threshold) {
    return highest(0, RangeLayout.SIZE) + more >= threshold;
  }

  /** The highest of the sums in [from, to). */
  private int highest(int from, int to) {
    int highest = 0;
    for (int i = from; i < to; i++) {
      highest = Math.max(highest, sums[i]);
    }
    return highest;
  }

  @Override
  public int candidates(long more, int threshold, int[] docs) {
    long needed = threshold - more;
    if (needed <= 0) {
      return MANY;
    }
    int n = 0;
    for (int chunk = 0; chunk < RangeLayout.SIZE; chunk += CHUNK) {
      if (highest(chunk, chunk + CHUNK) < needed) {
        continue;
      }
      for (int d = chunk; d < chunk + CHUNK; d++) {
        if (sums[d] >= needed) {
          if (n == docs.length) {
            return MANY;
          }
          docs[n++] = d;
        }
      }
    }
    return n;
  }

  @Override
  public void add(int doc, int impact, int weight) {
    sums[doc] += weight * impact;
  }

  @Override
  public void addList(ScoredTerm term, int range) throws IOException {
    int word = term.postings().word(range);
    term.postings().read(range, data);
    if (RangeLayout.form(word) == RangeLayout.LIST_1) {
      addList(RangeLayout.entries(word), term.weight());
    } else {
      ImpactLists.each(data, word, (doc, impact) -> add(doc, impact, term.weight()));
    }
  }

  private void addList(int entries, int weight) {
    int doc = -1;
    for (int i = 0; i < entries; i++) {
      doc += data[i] & 0xFF;
      sums[doc & RangeLayout.SIZE - 1] += weight * (data[entries + i] & 0xFF);
    }
  }

  @Override
  public void addColumn(ScoredTerm term, int range) throws IOException {
    TermRanges postings = term.postings();
    if (postings.length(range) == RangeLayout.SIZE) {
      postings.readColumn(range, column);
      for (int part = 0; part < Long.BYTES; part++) {
        addPart(sums, part * RangeLayout.STRIDE, column, part * Byte.SIZE, term.weight());
      }
    } else {
      postings.read(range, data);
      for (int d = 0; d < postings.length(range); d++) {
        sums[d] += term.weight() * (data[d] & 0xFF);
      }
    }
  }

  /** Adds one byte of every word. The loop stands alone so that it is vectorized, conversions and all. */
  private static void addPart(int[] sums, int from, long[] column, int shift, int weight) {
    for (int i = 0; i < RangeLayout.STRIDE; i++) {
      sums[from + i] += weight * (int) (column[i] >>> shift & 0xFF);
    }
  }

  @Override
  public int sum(int doc) {
    return sums[doc];
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    for (int chunk = 0; chunk < RangeLayout.SIZE; chunk += CHUNK) {
      int first = Math.max(from - base, chunk);
      int end = Math.min(to - base, chunk + CHUNK);
      if (first < end && highest(chunk, chunk + CHUNK) >= current.least()) {
        collectChunk(current, collector, accepted, base, first, end);
      }
    }
  }

  private void collectChunk(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    int least = current.least();
    for (int d = from; d < to; d++) {
      if (sums[d] >= least && (accepted == null || accepted.get(base + d))) {
        current.score = sums[d];
        collector.collect(base + d);
        least = current.least();
      }
    }
  }
}
