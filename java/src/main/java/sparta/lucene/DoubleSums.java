package sparta.lucene;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;

/** Sums for weights that are no integers, and for sums of any size: float32 products, added in double precision. */
final class DoubleSums implements RangeSums {
  /** Bounds are added in another order than contributions, sums rounded before: they may be lower by rounding. */
  private static final double SLACK = 1 + 1e-6;

  /** Sums that are compared with each other before the threshold is. */
  private static final int FOLD = 128;

  /** Documents that are left out together. */
  private static final int CHUNK = 1024;

  private final double[] sums = new double[Ranges.SIZE];
  private final float[] highest = new float[FOLD];
  private final long[] column = new long[Ranges.STRIDE];
  private final byte[] data = new byte[Ranges.MOST_BYTES];

  private static final Spares<DoubleSums> SPARES = new Spares<>(DoubleSums::new);

  private DoubleSums() {}

  /** Takes sums that were given back, else new ones. */
  static DoubleSums take() {
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
  public boolean possible(double bound, float threshold) {
    return (float) (bound * SLACK) >= threshold;
  }

  @Override
  public boolean reach(double more, float threshold) {
    return possible(highest(0, Ranges.SIZE) + more, threshold);
  }

  /** The highest of the sums in [from, to), rounded as scores are. */
  private float highest(int from, int to) {
    Arrays.fill(highest, 0);
    for (int i = from; i < to; i += FOLD) {
      foldHighest(sums, highest, i);
    }
    float most = 0;
    for (float sum : highest) {
      most = sum > most ? sum : most;
    }
    return most;
  }

  /** As floats, to which scores are rounded anyway: two arrays of one type are taken for one, and not vectorized. */
  private static void foldHighest(double[] sums, float[] highest, int from) {
    for (int i = 0; i < FOLD; i++) {
      highest[i] = Math.max(highest[i], (float) sums[from + i]);
    }
  }

  @Override
  public void add(int doc, int impact, float weight) {
    sums[doc] += weight * impact;
  }

  @Override
  public void addList(ScoredTerm term, int range) throws IOException {
    int word = term.postings().word(range);
    term.postings().read(range, data);
    if (Ranges.form(word) == Ranges.LIST_1) {
      addList(Ranges.entries(word), term.weight());
    } else {
      ImpactLists.each(data, word, (doc, impact) -> add(doc, impact, term.weight()));
    }
  }

  private void addList(int entries, float weight) {
    int doc = -1;
    for (int i = 0; i < entries; i++) {
      doc += data[i] & 0xFF;
      sums[doc & Ranges.SIZE - 1] += weight * (data[entries + i] & 0xFF);
    }
  }

  @Override
  public void addColumn(ScoredTerm term, int range) throws IOException {
    TermRanges postings = term.postings();
    if (postings.length(range) == Ranges.SIZE) {
      postings.readColumn(range, column);
      for (int part = 0; part < Long.BYTES; part++) {
        addPart(sums, part * Ranges.STRIDE, column, part * Byte.SIZE, term.weight());
      }
    } else {
      postings.read(range, data);
      for (int d = 0; d < postings.length(range); d++) {
        sums[d] += term.weight() * (data[d] & 0xFF);
      }
    }
  }

  /** Adds one byte of every word. The loop stands alone so that it is vectorized, conversions and all. */
  private static void addPart(double[] sums, int from, long[] column, int shift, float weight) {
    for (int i = 0; i < Ranges.STRIDE; i++) {
      sums[from + i] += weight * (float) (column[i] >>> shift & 0xFF);
    }
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    for (int chunk = 0; chunk < Ranges.SIZE; chunk += CHUNK) {
      int first = Math.max(from - base, chunk);
      int end = Math.min(to - base, chunk + CHUNK);
      if (first < end && highest(chunk, chunk + CHUNK) >= current.threshold) {
        collectChunk(current, collector, accepted, base, first, end);
      }
    }
  }

  private void collectChunk(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    float threshold = current.threshold;
    for (int d = from; d < to; d++) {
      float score = (float) sums[d];
      if (score >= threshold && (accepted == null || accepted.get(base + d))) {
        current.score = score;
        collector.collect(base + d);
        threshold = current.threshold;
      }
    }
  }
}
