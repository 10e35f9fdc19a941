package sparta.lucene.scoring;

import java.io.IOException;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.util.Bits;

/**
 * Accumulators for the documents of one range. A document of which nothing was added has the sum 0. After the last sum
 * is added, they are collected.
 */
interface RangeSums {
  void clear();

  /** Whether some document's sum may come to the threshold when at most {@code more} is added to it. */
  boolean reach(long more, int threshold);

  /** Adds one posting; documents count from the start of the range. */
  void add(int doc, int impact, int weight);

  void addList(ScoredTerm term, int range) throws IOException;

  void addColumn(ScoredTerm term, int range) throws IOException;

  /** Collects the accepted documents of [from, to) that reach the threshold of {@code current}, in their order. */
  void collect(ImpactScorer.Current current, LeafCollector collector, Bits accepted, int base, int from, int to)
      throws IOException;

  /** Ends the use of these sums, which are large, so that the thread's next query may take them. */
  void giveBack();
}
