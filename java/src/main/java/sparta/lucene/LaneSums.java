package sparta.lucene;

import java.io.IOException;
import java.util.List;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;

/**
 * Integer sums below 2^15, four to a word: document d of the range is lane {@code d / WORDS} of word
 * {@code d % WORDS}.
 *
 * <p>The loops over words add four lanes at once, and have the form (whole arrays of long, one operation after the
 * other) that every HotSpot of our time turns into vector instructions; loops from bytes to shorts it leaves alone. As
 * no sum reaches the lane's highest bit, no carry crosses lanes, and a sum is at least t exactly when adding
 * 2^15 − t sets that bit.
 */
final class LaneSums implements RangeSums {
  /** Above every sum. */
  private static final int LIMIT = TopHits.LIMIT;

  private static final int WORDS = Ranges.SIZE / 4;
  private static final int WORD_BITS = Ranges.BITS - 2;
  private static final long EVERY_LANE = 0x0001_0001_0001_0001L;
  private static final long HIGH_BITS = EVERY_LANE << 15;
  private static final long LOW_BYTES = EVERY_LANE * 0xFF;

  /** Words that are looked through together. */
  private static final int BLOCK = 16;

  private final long[] sums = new long[WORDS];
  private final long[] column = new long[Ranges.STRIDE];
  private final long[] blocks = new long[WORDS / BLOCK];
  private final byte[] data = new byte[Ranges.MOST_BYTES];

  /** Scores above, documents below; one more than there can be. */
  private final long[] found = new long[Ranges.SIZE + 1];

  /** Whether these sums hold every score of the terms: weights are integers, and the sum of the bounds is small. */
  static boolean suit(List<ScoredTerm> terms) {
    double bound = 0;
    for (ScoredTerm term : terms) {
      if (term.weight() != Math.rint(term.weight())) {
        return false;
      }
      bound += term.bound();
    }
    return bound < LIMIT;
  }

  @Override
  public void clear() {
    java.util.Arrays.fill(sums, 0);
  }

  @Override
  public boolean possible(double bound, float threshold) {
    return bound >= threshold;
  }

  @Override
  public boolean reach(double more, float threshold) {
    int needed = (int) Math.ceil(threshold - more);
    return needed <= 0 || needed < LIMIT && reach(needed);
  }

  private boolean reach(int threshold) {
    long missing = EVERY_LANE * (LIMIT - threshold);
    long any = 0;
    for (int i = 0; i < WORDS; i++) {
      any |= sums[i] + missing;
    }
    return (any & HIGH_BITS) != 0;
  }

  @Override
  public void add(int doc, int impact, float weight) {
    sums[doc & WORDS - 1] += (long) impact * (int) weight << lane(doc);
  }

  @Override
  public void addList(ScoredTerm term, int range) throws IOException {
    int word = term.postings().word(range);
    term.postings().read(range, data);
    if (Ranges.form(word) == Ranges.LIST_1) {
      addList(sums, data, Ranges.entries(word), (int) term.weight());
    } else {
      ImpactLists.each(data, word, (doc, impact) -> add(doc, impact, term.weight()));
    }
  }

  private static void addList(long[] sums, byte[] data, int entries, int weight) {
    int doc = -1;
    for (int i = 0; i < entries; i++) {
      doc += data[i] & 0xFF;
      sums[doc & WORDS - 1] += (long) ((data[entries + i] & 0xFF) * weight) << lane(doc);
    }
  }

  @Override
  public void addColumn(ScoredTerm term, int range) throws IOException {
    TermRanges postings = term.postings();
    if (postings.length(range) == Ranges.SIZE) {
      postings.readColumn(range, column);
      if (term.weight() == 1) {
        addColumn(sums, column);
      } else {
        addColumn(sums, column, (long) term.weight());
      }
    } else {
      postings.read(range, data);
      int weight = (int) term.weight();
      for (int d = 0; d < postings.length(range); d++) {
        sums[d & WORDS - 1] += (long) ((data[d] & 0xFF) * weight) << lane(d);
      }
    }
  }

  private static void addColumn(long[] sums, long[] column) {
    for (int i = 0; i < Ranges.STRIDE; i++) {
      sums[i] += column[i] & LOW_BYTES;
    }
    for (int i = 0; i < Ranges.STRIDE; i++) {
      sums[Ranges.STRIDE + i] += column[i] >>> 8 & LOW_BYTES;
    }
  }

  private static void addColumn(long[] sums, long[] column, long weight) {
    for (int i = 0; i < Ranges.STRIDE; i++) {
      sums[i] += (column[i] & LOW_BYTES) * weight;
    }
    for (int i = 0; i < Ranges.STRIDE; i++) {
      sums[Ranges.STRIDE + i] += (column[i] >>> 8 & LOW_BYTES) * weight;
    }
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    int n = find(current.threshold, base, from, to, accepted);
    if (collector instanceof TopHitsCollector.Leaf top) {
      if (n > 0) {
        current.setMinCompetitiveScore(top.collectCounted(found, n));
      }
      return;
    }
    for (int i = 0; i < n; i++) {
      current.score = (int) (found[i] >>> 32);
      if (current.score >= current.threshold) {
        collector.collect((int) found[i]);
      }
    }
  }

  /** Writes the accepted documents of [from, to) that reach the threshold to {@code found}, in their order. */
  private int find(float least, int base, int from, int to, Bits accepted) {
    int threshold = (int) Math.ceil(Math.min(least, LIMIT));
    if (threshold == LIMIT || !reach(threshold)) {
      return 0;
    }
    markBlocks(threshold);
    int n = 0;
    for (int lane = 0; lane < 4; lane++) {
      long bit = 1L << 16 * lane + 15;
      for (int block = 0; block < blocks.length; block++) {
        if ((blocks[block] & bit) != 0) {
          n = find(threshold, lane, block * BLOCK, base, n);
        }
      }
    }
    return accepted == null && from <= base && to >= base + Ranges.SIZE ? n : accept(from, to, accepted, n);
  }

  /** Looks through one lane of a block. A hit is written whatever its score, then kept or not: no branch to guess. */
  private int find(int threshold, int lane, int block, int base, int n) {
    int first = base + (lane << WORD_BITS);
    for (int i = block; i < block + BLOCK; i++) {
      int score = (int) (sums[i] >>> 16 * lane) & 0xFFFF;
      found[n] = (long) score << 32 | first + i;
      n += threshold - 1 - score >>> 31;
    }
    return n;
  }

  private int accept(int from, int to, Bits accepted, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
      int doc = (int) found[i];
      if (doc >= from && doc < to && (accepted == null || accepted.get(doc))) {
        found[kept++] = found[i];
      }
    }
    return kept;
  }

  private void markBlocks(int threshold) {
    long missing = EVERY_LANE * (LIMIT - threshold);
    for (int block = 0; block < blocks.length; block++) {
      long any = 0;
      for (int i = block * BLOCK; i < (block + 1) * BLOCK; i++) {
        any |= sums[i] + missing;
      }
      blocks[block] = any;
    }
  }

  /** Where in its word the document's lane begins. */
  private static int lane(int doc) {
    return doc >>> WORD_BITS - 4 & 48;
  }
}
