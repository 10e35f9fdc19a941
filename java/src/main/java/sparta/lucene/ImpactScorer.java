package sparta.lucene;

import java.io.IOException;
import java.util.List;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.util.Bits;

/**
 * Sums a query over one segment, range by range.
 *
 * <p>A range whose bounds cannot reach the collector's threshold is left out. In any other the lists are added first,
 * and the columns, which cost the same wherever they stand, only if with them some document may reach the threshold.
 * Documents below the threshold are not collected; those at it are.
 */
final class ImpactScorer extends BulkScorer {
  private final ScoredTerm[] terms;
  private final int maxDoc;
  private final long cost;
  private final RangeSums sums;
  private final int[] nextShort;
  private final Current current = new Current();

  ImpactScorer(List<ScoredTerm> terms, int maxDoc, long cost) {
    this.terms = terms.toArray(ScoredTerm[]::new);
    this.maxDoc = maxDoc;
    this.cost = cost;
    nextShort = new int[this.terms.length];
    sums = LaneSums.suit(this.terms) ? new LaneSums() : new DoubleSums();
  }

  @Override
  public long cost() {
    return cost;
  }

  @Override
  public int score(LeafCollector collector, Bits acceptDocs, int min, int max) throws IOException {
    collector.setScorer(current);
    int end = Math.min(max, maxDoc);
    for (int from = min; from < end; ) {
      int range = from >>> Ranges.BITS;
      int to = Math.min(end, Ranges.end(range, maxDoc));
      if (sum(range)) {
        sums.collect(current, collector, acceptDocs, range << Ranges.BITS, from, to);
      }
      from = to;
    }
    return max >= maxDoc ? DocIdSetIterator.NO_MORE_DOCS : max;
  }

  /** Sums one range; false when no document in it can reach the threshold. */
  private boolean sum(int range) throws IOException {
    double columns = 0;
    double all = 0;
    for (ScoredTerm term : terms) {
      if (term.postings().isShort()) {
        all += term.bound();
      } else {
        double bound = term.bound(range);
        all += bound;
        columns += Ranges.form(term.postings().word(range)) == Ranges.COLUMN ? bound : 0;
      }
    }
    if (!sums.possible(all, current.threshold)) {
      return false;
    }
    sums.clear();
    for (int i = 0; i < terms.length; i++) {
      if (terms[i].postings().isShort()) {
        addShort(i, range);
      } else if (Ranges.form(terms[i].postings().word(range)) != Ranges.COLUMN) {
        sums.addList(terms[i], range);
      }
    }
    if (columns == 0) {
      return true;
    }
    if (!sums.reach(columns, current.threshold)) {
      return false;
    }
    for (ScoredTerm term : terms) {
      if (!term.postings().isShort() && Ranges.form(term.postings().word(range)) == Ranges.COLUMN && term.postings().word(range) != 0) {
        sums.addColumn(term, range);
      }
    }
    return true;
  }

  private void addShort(int i, int range) {
    TermRanges postings = terms[i].postings();
    int next = nextShort[i];
    while (next < postings.docFreq() && postings.shortDoc(next) >>> Ranges.BITS < range) {
      next++;
    }
    while (next < postings.docFreq() && postings.shortDoc(next) >>> Ranges.BITS == range) {
      sums.add(postings.shortDoc(next) & Ranges.SIZE - 1, postings.shortImpact(next), terms[i].weight());
      next++;
    }
    nextShort[i] = next;
  }

  /** The document that is being collected. */
  static final class Current extends Scorable {
    float score;
    float threshold = Float.MIN_VALUE;

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
