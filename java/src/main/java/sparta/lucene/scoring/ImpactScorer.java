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
 * then the columns, each only if documents may still reach the threshold. Few such documents are looked up instead.
 * Documents below the threshold are not collected; those at it are.
 */
final class ImpactScorer extends BulkScorer {
  /** At most so many documents of a range are looked up in the columns that are left, in place of adding these. */
  private static final int MOST_CANDIDATES = 16;

  /** So many ranges in a row may have too many candidates before they are counted rarely. */
  private static final int PATIENCE = 4;

  /** Then they are counted in one of so many ranges. */
  private static final int RARELY = 16;

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

  /** The terms that have a column in the range, by descending bound. */
  private final ScoredTerm[] column;

  private final long[] columnBound;

  /** How many more ranges may have too many candidates before each column is added. */
  private final int[] patience;

  /** The documents that can still reach the threshold, counted from the start of the range, and their sums. */
  private final int[] candidates = new int[MOST_CANDIDATES];

  private final int[] candidateSums = new int[MOST_CANDIDATES];

  /** Those of them that are accepted: sums above, documents below. */
  private final long[] hits = new long[MOST_CANDIDATES];

  /** The candidates' number when they are looked up; −1 when all columns of the range are added. */
  private int candidateCount;

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
    columnBound = new long[ranged.length];
    patience = new int[ranged.length];
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
        if (candidateCount >= 0) {
          collectCandidates(sums, collector, acceptDocs, base, from, to);
        } else if (few != null) {
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
    candidateCount = -1;
    long all = findShort(range);
    long left = 0;
    int columns = 0;
    for (int i = 0; i < ranged.length; i++) {
      int word = ranged[i].postings().word(range);
      if (word != 0) {
        long bound = ranged[i].bound(range);
        all += bound;
        if (RangeLayout.form(word) == RangeLayout.COLUMN) {
          left += bound;
          insert(ranged[i], bound, columns++);
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
    if (few == null) {
      return addColumns(sums, range, columns, left);
    }
    if (columns > 0 && sums.highest(few, range << RangeLayout.BITS, from, to) + left < current.least()) {
      return null;
    }
    for (int i = 0; i < columns; i++) {
      sums.addColumn(column[i], range);
    }
    return sums;
  }

  /**
   * Adds the columns of a range until so few documents can reach the threshold that they are looked up in the others;
   * null when no document can.
   *
   * @param bound what all columns add at most to a document
   */
  private RangeSums addColumns(RangeSums sums, int range, int columns, long bound) throws IOException {
    long left = bound;
    for (int i = 0; i < columns; i++) {
      if (patience[i] >= 0 || range % RARELY == 0) {
        int n = sums.candidates(left, current.least(), candidates);
        if (n != RangeSums.MANY) {
          patience[i] = PATIENCE;
          candidateCount = lookUp(sums, n, range, i, columns, left);
          return candidateCount > 0 ? sums : null;
        }
        patience[i]--;
      } else if (i == 0 && !sums.reach(left, current.least())) {
        return null;
      }
      sums.addColumn(column[i], range);
      left -= columnBound[i];
    }
    return sums;
  }

  /** Keeps the columns in the order of their bounds. */
  private void insert(ScoredTerm term, long bound, int n) {
    int i = n;
    for (; i > 0 && columnBound[i - 1] < bound; i--) {
      column[i] = column[i - 1];
      columnBound[i] = columnBound[i - 1];
    }
    column[i] = term;
    columnBound[i] = bound;
  }

  /**
   * Completes the sums of the candidates from the columns that are not added. All are looked up in one column before
   * the next, so that many reads wait for memory at once; those that can no longer reach the threshold are dropped.
   *
   * @return the number that is left
   */
  private int lookUp(RangeSums sums, int candidateCount, int range, int first, int columns, long bound)
      throws IOException {
    int least = current.least();
    int n = candidateCount;
    for (int i = 0; i < n; i++) {
      candidateSums[i] = sums.sum(candidates[i]);
    }
    long left = bound;
    for (int c = first; c < columns && n > 0; c++) {
      TermRanges postings = column[c].postings();
      int weight = column[c].weight();
      for (int i = 0; i < n; i++) {
        candidateSums[i] += weight * postings.columnImpact(range, candidates[i]);
      }
      left -= columnBound[c];
      int kept = 0;
      for (int i = 0; i < n; i++) {
        if (candidateSums[i] + left >= least) {
          candidates[kept] = candidates[i];
          candidateSums[kept++] = candidateSums[i];
        }
      }
      n = kept;
    }
    return n;
  }

  private void collectCandidates(
      RangeSums sums, LeafCollector collector, Bits accepted, int base, int from, int to) throws IOException {
    int n = 0;
    for (int i = 0; i < candidateCount; i++) {
      int doc = base + candidates[i];
      if (doc >= from && doc < to && (accepted == null || accepted.get(doc))) {
        hits[n++] = (long) candidateSums[i] << 32 | doc;
      }
    }
    sums.collect(current, collector, hits, n);
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
