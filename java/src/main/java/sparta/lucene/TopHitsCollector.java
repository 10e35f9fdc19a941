package sparta.lucene;

import java.io.IOException;
import java.util.Collection;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.search.Collector;
import org.apache.lucene.search.CollectorManager;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.search.ScoreMode;

/**
 * Collects the top k in the order of {@link TopHits}.
 *
 * <p>Once k hits are kept, Lucene is told to skip what scores <em>below</em> the worst of them. What scores the same
 * still arrives, because its corpus position may be the earlier one; only then is the position looked up.
 */
final class TopHitsCollector implements Collector {
  private final TopHits hits;

  private TopHitsCollector(int k) {
    hits = new TopHits(k);
  }

  /** For a search in one thread, which has one collector. */
  static CollectorManager<TopHitsCollector, HitList> manager(int k) {
    return new CollectorManager<>() {
      @Override
      public TopHitsCollector newCollector() {
        return new TopHitsCollector(k);
      }

      @Override
      public HitList reduce(Collection<TopHitsCollector> collectors) {
        if (collectors.size() > 1) {
          throw new IllegalStateException("expected one collector, found " + collectors.size());
        }
        return collectors.isEmpty() ? HitList.EMPTY : collectors.iterator().next().hits.drain();
      }
    };
  }

  @Override
  public ScoreMode scoreMode() {
    return ScoreMode.TOP_SCORES;
  }

  @Override
  public LeafCollector getLeafCollector(LeafReaderContext leaf) throws IOException {
    NumericDocValues positions = DocValues.getNumeric(leaf.reader(), Fields.POSITION);
    return new Leaf(leaf.docBase, positions);
  }

  private final class Leaf implements LeafCollector {
    private final int docBase;
    private final NumericDocValues positions;
    private Scorable scorer;

    Leaf(int docBase, NumericDocValues positions) {
      this.docBase = docBase;
      this.positions = positions;
    }

    @Override
    public void setScorer(Scorable scorer) throws IOException {
      this.scorer = scorer;
      skipWorse();
    }

    @Override
    public void collect(int doc) throws IOException {
      float score = scorer.score();
      if (!hits.full()) {
        hits.add(score, position(doc), docBase + doc);
        skipWorse();
      } else if (score >= hits.worstScore()) {
        long position = position(doc);
        if (hits.beatsWorst(score, position)) {
          hits.replaceWorst(score, position, docBase + doc);
          skipWorse();
        }
      }
    }

    private void skipWorse() throws IOException {
      if (hits.full()) {
        scorer.setMinCompetitiveScore(hits.worstScore());
      }
    }

    private long position(int doc) throws IOException {
      return positions.advanceExact(doc) ? positions.longValue() : Long.MAX_VALUE;
    }
  }
}
