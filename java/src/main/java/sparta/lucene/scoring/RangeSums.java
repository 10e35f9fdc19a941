package sparta.lucene.scoring;

import java.io.IOException;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.FixedBitSet;

/**
 * Accumulators for the documents of one range. A document of which nothing was added has the sum 0. After the last sum
 * is added, they are collected.
 */
interface RangeSums {
  /** So many documents of a range are looked at one by one. */
  int FEW = 256;

  /** What {@link #candidates} returns if they are more than there is room for. */
  int MANY = -1;

  void clear();

  /** Whether some document's sum may come to the threshold when at most {@code more} is added to it. */
  boolean reach(long more, int threshold);

  /**
   * Finds the documents whose sums may come to the threshold when at most {@code more} is added to them.
   *
   * @param docs takes them in their order; they count from the start of the range
   * @return their number, or {@link #MANY}
   */
  int candidates(long more, int threshold, int[] docs);

  /** Adds one posting; documents count from the start of the range. */
  void add(int doc, int impact, int weight);

  void addList(ScoredTerm term, int range) throws IOException;

  void addColumn(ScoredTerm term, int range) throws IOException;

  /** Collects the accepted documents of [from, to) that reach the threshold of {@code current}, in their order. */
  void collect(ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException;

  /** Collects hits that reach the threshold, sums above, documents below, in the order of the documents. */
  default void collect(ImpactScorer.Current current, LeafCollector collector, long[] hits, int n) throws IOException {
    for (int i = 0; i < n; i++) {
      current.score = (int) (hits[i] >>> 32);
      if (current.score >= current.threshold) {
        collector.collect((int) hits[i]);
      }
    }
  }

  /** The sum of one document, which counts from the start of the range. */
  int sum(int doc);

  /** The highest sum of the documents of [from, to) in a set. */
  default int highest(FixedBitSet few, int base, int from, int to) {
    int highest = 0;
    for (int doc = few.nextSetBit(from, to); doc < to; doc = next(few, doc, to)) {
      highest = Math.max(highest, sum(doc - base));
    }
    return highest;
  }

  /** Collects the documents of [from, to) in a set of at most {@link #FEW}, as the other does. */
  default void collect(
      ImpactScorer.Current current, LeafCollector collector, FixedBitSet few, int base, int from, int to)
      throws IOException {
    for (int doc = few.nextSetBit(from, to); doc < to; doc = next(few, doc, to)) {
      int sum = sum(doc - base);
      if (sum >= current.least()) {
        current.score = sum;
        collector.collect(doc);
      }
    }
  }

  /** The next document of the set after one; {@code to} or more when there is none. */
  static int next(FixedBitSet few, int doc, int to) {
    return doc + 1 < to ? few.nextSetBit(doc + 1, to) : to;
  }

  /** Ends the use of these sums, which are large, so that the thread's next query may take them. */
  void giveBack();
}
