package sparta.lucene.scoring;

import java.io.IOException;
import java.util.List;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.DocAndFloatFeatureBuffer;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.FixedBitSet;

/** Sums any number of terms over one range of documents after another, in double precision. */
final class TermSumScorer extends BulkScorer {
  private static final int SIZE = 1 << 12;

  private final List<Scorer> terms;
  private final FixedBitSet kept;
  private final int maxDoc;
  private final double[] sums = new double[SIZE];
  private final FixedBitSet matching = new FixedBitSet(SIZE);
  private final DocAndFloatFeatureBuffer scores = new DocAndFloatFeatureBuffer();

  TermSumScorer(List<Scorer> terms, FixedBitSet kept, int maxDoc) {
    this.terms = terms;
    this.kept = kept;
    this.maxDoc = maxDoc;
  }

  @Override
  public int score(LeafCollector collector, Bits accepted, int min, int max) throws IOException {
    Sum sum = new Sum();
    collector.setScorer(sum);
    int end = Math.min(max, maxDoc);
    for (int begin = min; begin < end; begin += SIZE) {
      for (Scorer term : terms) {
        add(term, accepted, begin, Math.min(end, begin + SIZE));
      }
      for (int i = next(0); i < SIZE; i = next(i + 1)) {
        sum.score = (float) sums[i];
        sums[i] = 0;
        if (kept == null || kept.get(begin + i)) {
          collector.collect(begin + i);
        }
      }
      matching.clear();
    }
    return max < maxDoc ? max : DocIdSetIterator.NO_MORE_DOCS;
  }

  private void add(Scorer term, Bits accepted, int begin, int end) throws IOException {
    if (term.docID() < begin) {
      term.iterator().advance(begin);
    }
    while (term.docID() < end) {
      term.nextDocsAndScores(end, accepted, scores);
      for (int i = 0; i < scores.size; i++) {
        int place = scores.docs[i] - begin;
        sums[place] += scores.features[i];
        matching.set(place);
      }
    }
  }

  private int next(int place) {
    return place < SIZE ? matching.nextSetBit(place) : DocIdSetIterator.NO_MORE_DOCS;
  }

  @Override
  public long cost() {
    return terms.stream().mapToLong(term -> term.iterator().cost()).sum();
  }

  private static final class Sum extends Scorable {
    private float score;

    @Override
    public float score() {
      return score;
    }
  }
}
