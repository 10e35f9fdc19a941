package sparta.lucene.scoring;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.FixedBitSet;
import sparta.lucene.codec.ImpactLists;
import sparta.lucene.codec.RangeLayout;
import sparta.lucene.codec.TermRanges;
import sparta.lucene.collecting.TopHitsCollector;

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
  static final int LIMIT = TopHitsCollector.COUNTED_LIMIT;

  private static final int WORDS = RangeLayout.SIZE / 4;
  private static final int WORD_BITS = RangeLayout.BITS - 2;
  private static final long EVERY_LANE = 0x0001_0001_0001_0001L;
  private static final long HIGH_BITS = EVERY_LANE << 15;
  private static final long LOW_BYTES = EVERY_LANE * 0xFF;

  /** Words that are looked through together. */
  private static final int BLOCK = 16;

  /** Blocks that are first looked through as one. */
  private static final int CHUNK = 16;

  /** So many hits are handed over together; few, so that the threshold rises early. */
  private static final int HANDOVER = FEW;

  private final long[] sums = new long[WORDS];
  private final long[] column = new long[RangeLayout.STRIDE];
  private final long[] blocks = new long[WORDS / BLOCK];
  private final byte[] data = new byte[RangeLayout.MOST_BYTES];

  /** Scores above, documents below. */
  private final long[] found = new long[HANDOVER + BLOCK];

  /** The threshold that {@link #blocks} are marked for; 0 after any change of the sums. */
  private int marked;

  private boolean anyMarked;

  private static final ObjectPool<LaneSums> SPARES = new ObjectPool<>(LaneSums::new);

  private LaneSums() {}

  /** Takes sums that were given back, else new ones. */
  static LaneSums take() {
    return SPARES.take();
  }

  @Override
  public void giveBack() {
    SPARES.giveBack(this);
  }

  @Override
  public void clear() {
    Arrays.fill(sums, 0);
    marked = 0;
  }

  @Override
  public boolean reach(long more, int threshold) {
    long needed = threshold - more;
    return needed <= 0 || needed < LIMIT && reach(0, WORDS, EVERY_LANE * (LIMIT - needed));
  }

  @Override
  public int candidates(long more, int threshold, int[] docs) {
    long needed = threshold - more;
    if (needed <= 0) {
      return MANY;
    }
    if (needed >= LIMIT) {
      return 0;
    }
    long missing = EVERY_LANE * (LIMIT - needed);
    int marks = 0;
    int lanes = 0;
    marked = 0; // the marks are taken for this threshold
    for (int chunk = 0; chunk < blocks.length; chunk += CHUNK) {
      if (reach(chunk * BLOCK, (chunk + CHUNK) * BLOCK, missing)) {
        for (int block = chunk; block < chunk + CHUNK; block++) {
          long mark = or(sums, block * BLOCK, missing) & HIGH_BITS;
          if (mark != 0) {
            lanes += Long.bitCount(mark);
            if (lanes > docs.length) {
              return MANY;
            }
            blocks[marks] = mark | block;
            marks++;
          }
        }
      }
    }
    return find((int) needed, marks, docs);
  }

  /** Looks through the marked blocks: above, the lanes that reach the threshold; in the lowest bits, the block. */
  private int find(int needed, int marks, int[] docs) {
    int n = 0;
    for (int lane = 0; lane < 4; lane++) {
      long bit = 1L << 16 * lane + 15;
      for (int i = 0; i < marks; i++) {
        if ((blocks[i] & bit) != 0) {
          int first = (int) (blocks[i] & blocks.length - 1) * BLOCK;
          for (int at = first; at < first + BLOCK; at++) {
            if (((int) (sums[at] >>> 16 * lane) & 0xFFFF) >= needed) {
              if (n == docs.length) {
                return MANY;
              }
              docs[n++] = (lane << WORD_BITS) + at;
            }
          }
        }
      }
    }
    return n;
  }

  @Override
  public void add(int doc, int impact, int weight) {
    sums[doc & WORDS - 1] += (long) impact * weight << lane(doc);
  }

  @Override
  public void addList(ScoredTerm term, int range) throws IOException {
    int word = term.postings().word(range);
    if (RangeLayout.form(word) == RangeLayout.LIST_1) {
      int from = term.postings().readList(range);
      addList(sums, term.postings().lists(), from, RangeLayout.entries(word), term.weight());
    } else {
      term.postings().read(range, data);
      ImpactLists.each(data, word, (doc, impact) -> add(doc, impact, term.weight()));
    }
  }

  private static void addList(long[] sums, byte[] data, int from, int entries, int weight) {
    int doc = -1;
    int mask = sums.length - 1;
    for (int i = from; i < from + entries; i++) {
      doc += data[i] & 0xFF;
      sums[doc & mask] += (long) ((data[entries + i] & 0xFF) * weight) << lane(doc);
    }
  }

  @Override
  public void addColumn(ScoredTerm term, int range) throws IOException {
    TermRanges postings = term.postings();
    if (postings.length(range) == RangeLayout.SIZE) {
      postings.readColumn(range, column);
      if (term.weight() == 1) {
        addColumn(sums, column);
      } else {
        addColumn(sums, column, term.weight());
      }
    } else {
      postings.read(range, data);
      int weight = term.weight();
      for (int d = 0; d < postings.length(range); d++) {
        sums[d & WORDS - 1] += (long) ((data[d] & 0xFF) * weight) << lane(d);
      }
    }
  }

  private static void addColumn(long[] sums, long[] column) {
    for (int i = 0; i < RangeLayout.STRIDE; i++) {
      sums[i] += column[i] & LOW_BYTES;
    }
    for (int i = 0; i < RangeLayout.STRIDE; i++) {
      sums[RangeLayout.STRIDE + i] += column[i] >>> 8 & LOW_BYTES;
    }
  }

  private static void addColumn(long[] sums, long[] column, long weight) {
    for (int i = 0; i < RangeLayout.STRIDE; i++) {
      sums[i] += (column[i] & LOW_BYTES) * weight;
    }
    for (int i = 0; i < RangeLayout.STRIDE; i++) {
      sums[RangeLayout.STRIDE + i] += (column[i] >>> 8 & LOW_BYTES) * weight;
    }
  }

  @Override
  public int sum(int doc) {
    return (int) (sums[doc & WORDS - 1] >>> lane(doc)) & 0xFFFF;
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, FixedBitSet few, int base, int from, int to)
      throws IOException {
    int least = current.least();
    int n = 0;
    for (int doc = few.nextSetBit(from, to); doc < to; doc = RangeSums.next(few, doc, to)) {
      int sum = sum(doc - base);
      found[n] = (long) sum << 32 | doc;
      n += least - 1 - sum >>> 31;
    }
    if (n > 0) {
      collect(current, collector, found, n);
    }
  }

  @Override
  public void collect(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException {
    for (int lane = 0; lane < 4; lane++) {
      int first = base + (lane << WORD_BITS);
      if (from < first + WORDS && first < to && mark(current.least())) {
        collectLane(current, collector, accepted, lane, base, from, to);
      }
    }
  }

  private void collectLane(
      ImpactScorer.Current current, LeafCollector collector, Bits accepted, int lane, int base, int from, int to)
      throws IOException {
    long bit = 1L << 16 * lane + 15;
    int n = 0;
    for (int block = 0; block < blocks.length; block++) {
      if ((blocks[block] & bit) != 0) {
        n = find(Math.min(current.least(), LIMIT), lane, block * BLOCK, base, n);
        if (n >= HANDOVER) {
          collect(current, collector, found, accept(from, to, base, accepted, n));
          n = 0;
        }
      }
    }
    if (n > 0) {
      collect(current, collector, found, accept(from, to, base, accepted, n));
    }
  }

  @Override
  public void collect(ImpactScorer.Current current, LeafCollector collector, long[] hits, int n) throws IOException {
    if (collector instanceof TopHitsCollector.Leaf top) {
      current.setMinCompetitiveScore(top.collectCounted(hits, n));
    } else {
      RangeSums.super.collect(current, collector, hits, n);
    }
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

  /** Keeps of the n found documents those that are accepted and in [from, to). */
  private int accept(int from, int to, int base, Bits accepted, int n) {
    if (accepted == null && from <= base && to >= base + RangeLayout.SIZE) {
      return n;
    }
    int kept = 0;
    for (int i = 0; i < n; i++) {
      int doc = (int) found[i];
      if (doc >= from && doc < to && (accepted == null || accepted.get(doc))) {
        found[kept++] = found[i];
      }
    }
    return kept;
  }

  /**
   * Whether anything reaches the threshold; marks the blocks in which it does. Marks made for a lower threshold are
   * good enough, as long as it was not much lower.
   */
  private boolean mark(int threshold) {
    if (marked == 0 || marked < threshold / 2) {
      marked = threshold;
      anyMarked = threshold < LIMIT && markChunks(threshold);
    }
    return anyMarked;
  }

  private boolean markChunks(int threshold) {
    long missing = EVERY_LANE * (LIMIT - threshold);
    boolean any = false;
    for (int chunk = 0; chunk < blocks.length; chunk += CHUNK) {
      if (reach(chunk * BLOCK, (chunk + CHUNK) * BLOCK, missing)) {
        any = true;
        for (int block = chunk; block < chunk + CHUNK; block++) {
          blocks[block] = or(sums, block * BLOCK, missing);
        }
      } else {
        Arrays.fill(blocks, chunk, chunk + CHUNK, 0);
      }
    }
    return any;
  }

  private boolean reach(int from, int to, long missing) {
    long any = 0;
    for (int i = from; i < to; i++) {
      any |= sums[i] + missing;
    }
    return (any & HIGH_BITS) != 0;
  }

  /** Unrolled by hand: for so few words the compiler's own loops before and after the vectors cost more. */
  private static long or(long[] s, int i, long missing) {
    long a = s[i] + missing | s[i + 1] + missing | s[i + 2] + missing | s[i + 3] + missing;
    long b = s[i + 4] + missing | s[i + 5] + missing | s[i + 6] + missing | s[i + 7] + missing;
    long c = s[i + 8] + missing | s[i + 9] + missing | s[i + 10] + missing | s[i + 11] + missing;
    long d = s[i + 12] + missing | s[i + 13] + missing | s[i + 14] + missing | s[i + 15] + missing;
    return a | b | c | d;
  }

  /** Where in its word the document's lane begins. */
  private static int lane(int doc) {
    return doc >>> WORD_BITS - 4 & 48;
  }
}
