package sparta.lucene.scoring;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.FixedBitSet;
import sparta.lucene.codec.RangeLayout;
import sparta.lucene.codec.TermRanges;

/**
 * Sums a query over one segment, range by range.
 *
 * <p>A range whose bounds cannot reach the collector's threshold is left out. In any other the lists are added first,
 * and the columns, which cost the same wherever they stand, only if with them some document may reach the threshold.
 * Documents below the threshold are not collected; those at it are.
 */
final class ImpactScorer extends BulkScorer {
  private final int maxDoc;
  private final long cost;
  private final FixedBitSet kept;
  private final Current current = new Current();
  private RangeSums lanes;
  private RangeSums ints;

  private final ScoredTerm[] shorts;

  /** Where the postings of each short term begin and end in the range. */
  private final int[] beginShort;

  private final int[] endShort;

  private final ScoredTerm[] ranged;
  private final ScoredTerm[] column;

  /**
   * @param terms their bounds add up to less than {@link IntSums#LIMIT}
   * @param kept the live documents that may be found; {@code null} for all that the search accepts
   */
  ImpactScorer(List<ScoredTerm> terms, int maxDoc, long cost, FixedBitSet kept) {
    this.kept = kept;
    this.maxDoc = maxDoc;
    this.cost = cost;
    shorts = some(terms, true);
    beginShort = new int[shorts.length];
    endShort = new int[shorts.length];
    ranged = some(terms, false);
    column = new ScoredTerm[ranged.length];
  }

  private static ScoredTerm[] some(List<ScoredTerm> terms, boolean isShort) {
    List<ScoredTerm> some = new ArrayList<>(terms.size());
    for (ScoredTerm term : terms) {
      if (term.postings().isShort() == isShort) {
        some.add(term);
      }
    }
    return some.toArray(ScoredTerm[]::new);
  }

  @Override
  public long cost() {
    return cost;
  }

  @Override
  public int score(LeafCollector collector, Bits acceptDocs, int min, int max) throws IOException {
    collector.setScorer(current);
    try {
      return scoreRanges(collector, kept == null ? acceptDocs : kept, min, max);
    } finally {
      if (lanes != null) {
        lanes.giveBack();
        lanes = null;
      }
      if (ints != null) {
        ints.giveBack();
        ints = null;
      }
    }
  }

  /** What holds sums up to the bound. */
  private RangeSums sums(long bound) {
    if (bound < LaneSums.LIMIT) {
      return lanes == null ? lanes = LaneSums.take() : lanes;
    }
    return ints == null ? ints = IntSums.take() : ints;
  }

  private int scoreRanges(LeafCollector collector, Bits acceptDocs, int min, int max) throws IOException {
    int end = Math.min(max, maxDoc);
    for (int from = min; from < end; ) {
      int range = from >>> RangeLayout.BITS;
      int to = Math.min(end, RangeLayout.end(range, maxDoc));
      int among = kept == null ? RangeLayout.SIZE : kept.cardinality(from, to);
      FixedBitSet few = among <= RangeSums.FEW ? kept : null;
      RangeSums sums = among == 0 ? null : sum(range, few, from, to);
      if (sums != null) {
        int base = range << RangeLayout.BITS;
        if (few != null) {
          sums.collect(current, collector, few, base, from, to);
        } else {
          sums.collect(current, collector, acceptDocs, base, from, to);
        }
      }
      from = to;
    }
    return max >= maxDoc ? DocIdSetIterator.NO_MORE_DOCS : max;
  }

  /**
   * Sums one range; null when no document in it can reach the threshold.
   *
   * @param few the only documents that count, {@code null} if they are many
   */
  private RangeSums sum(int range, FixedBitSet few, int from, int to) throws IOException {
    long all = findShort(range);
    long columnBound = 0;
    int columns = 0;
    for (int i = 0; i < ranged.length; i++) {
      int word = ranged[i].postings().word(range);
      if (word != 0) {
        long bound = ranged[i].bound(range);
        all += bound;
        if (RangeLayout.form(word) == RangeLayout.COLUMN) {
          columnBound += bound;
          column[columns++] = ranged[i];
        }
      }
    }
    if (all < current.least()) {
      return null;
    }
    RangeSums sums = sums(all);
    sums.clear();
    addShort(sums);
    for (ScoredTerm term : ranged) {
      int word = term.postings().word(range);
      if (word != 0 && RangeLayout.form(word) != RangeLayout.COLUMN) {
        sums.addList(term, range);
      }
    }
    if (columns > 0 && !reach(sums, columnBound, range, few, from, to)) {
      return null;
    }
    for (int i = 0; i < columns; i++) {
      sums.addColumn(column[i], range);
    }
    return sums;
  }

  private boolean reach(RangeSums sums, long more, int range, FixedBitSet few, int from, int to) {
    return few == null
        ? sums.reach(more, current.least())
        : sums.highest(few, range << RangeLayout.BITS, from, to) + more >= current.least();
  }

  /**
   * Finds the range's postings of the short terms, and returns the most that they add to a document. Ranges come in
   * ascending order, possibly repeated: postings that are skipped lie before the range.
   */
  private long findShort(int range) {
    long bound = 0;
    for (int i = 0; i < shorts.length; i++) {
      TermRanges postings = shorts[i].postings();
      int begin = beginShort[i];
      while (begin < postings.docFreq() && postings.shortDoc(begin) >>> RangeLayout.BITS < range) {
        begin++;
      }
      int end = begin;
      int highest = 0;
      for (; end < postings.docFreq() && postings.shortDoc(end) >>> RangeLayout.BITS == range; end++) {
        highest = Math.max(highest, postings.shortImpact(end));
      }
      beginShort[i] = begin;
      endShort[i] = end;
      bound += (long) shorts[i].weight() * highest;
    }
    return bound;
  }

  private void addShort(RangeSums sums) {
    for (int i = 0; i < shorts.length; i++) {
      TermRanges postings = shorts[i].postings();
      for (int at = beginShort[i]; at < endShort[i]; at++) {
        sums.add(postings.shortDoc(at) & RangeLayout.SIZE - 1, postings.shortImpact(at), shorts[i].weight());
      }
    }
  }

  /** The document that is being collected. */
  static final class Current extends Scorable {
    float score;
    float threshold = Float.MIN_VALUE;

    /** The least integer at the threshold, 1 or more. */
    int least() {
      return (int) Math.ceil(threshold);
    }

    @Override
    public float score() {
      return score;
    }

    @Override
    public void setMinCompetitiveScore(float threshold) {
      this.threshold = Math.max(threshold, Float.MIN_VALUE);
    }
  }
}
