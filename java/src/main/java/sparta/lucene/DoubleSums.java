package sparta.lucene;

import java.io.IOException;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;

/** Sums for weights that are no integers, and for sums of any size: float32 products, added in double precision. */
final class DoubleSums implements RangeSums {
  /** The bounds are added in another order than the contributions, and may be lower by rounding. */
  private static final double SLACK = 1 + 1e-9;

  private final double[] sums = new double[Ranges.SIZE];
  private final double[] products = new double[Ranges.HIGHEST_BYTE + 1];
  private final byte[] data = new byte[Ranges.MOST_BYTES];

  @Override
  public void clear() {
    java.util.Arrays.fill(sums, 0);
  }

  @Override
  public boolean possible(double bound, float threshold) {
    return (float) (bound * SLACK) >= threshold;
  }

  @Override
  public boolean reach(double more, float threshold) {
    return true;
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
    postings.read(range, data);
    for (int impact = 0; impact < products.length; impact++) {
      products[impact] = term.weight() * impact;
    }
    if (postings.length(range) == Ranges.SIZE) {
      for (int d = 0; d < Ranges.SIZE; d++) {
        sums[d] += products[data[Ranges.columnByte(d)] & 0xFF];
      }
    } else {
      for (int d = 0; d < postings.length(range); d++) {
        sums[d] += products[data[d] & 0xFF];
      }
    }
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    for (int d = from - base; d < to - base; d++) {
      float score = (float) sums[d];
      if (score >= current.threshold && (accepted == null || accepted.get(base + d))) {
        current.score = score;
        collector.collect(base + d);
      }
    }
  }
}
