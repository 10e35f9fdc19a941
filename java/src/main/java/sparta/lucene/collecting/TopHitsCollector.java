package sparta.lucene.collecting;

import java.io.IOException;
import java.util.Collection;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.search.Collector;
import org.apache.lucene.search.CollectorManager;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.search.ScoreMode;

/**
 * Collects the top k in the order of {@link TopHits}.
 *
 * <p>Lucene is told to skip what scores <em>below</em> the k-th best score known so far. What scores the same still
 * arrives, because its corpus position may be the earlier one.
 */
public final class TopHitsCollector implements Collector {
  /** Hits with integer scores below this can be handed over by {@link Leaf#collectCounted}. */
  public static final int COUNTED_LIMIT = 1 << 15;

  /** Finds the corpus positions of ascending docids. */
  public interface Positions {
    long[] of(int[] docids) throws IOException;
  }

  private final TopHits hits;

  private TopHitsCollector(TopHits hits) {
    this.hits = hits;
  }

  /** For a search in one thread, which has one collector. */
  public static CollectorManager<TopHitsCollector, HitList> manager(int k, Positions positions) {
    return new CollectorManager<>() {
      @Override
      public TopHitsCollector newCollector() {
        return new TopHitsCollector(new TopHits(k, positions));
      }

      @Override
      public HitList reduce(Collection<TopHitsCollector> collectors) throws IOException {
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
  public LeafCollector getLeafCollector(LeafReaderContext leaf) {
    return new Leaf(leaf.docBase);
  }

  /** One segment's share; {@code ImpactScorer} knows it, and hands over many hits at once. */
  public final class Leaf implements LeafCollector {
    private final int docBase;
    private Scorable scorer;

    Leaf(int docBase) {
      this.docBase = docBase;
    }

    @Override
    public void setScorer(Scorable scorer) throws IOException {
      this.scorer = scorer;
      skipWorse();
    }

    @Override
    public void collect(int doc) throws IOException {
      float score = scorer.score();
      if (score >= hits.threshold() && hits.add(docBase + doc, score)) {
        skipWorse();
      }
    }

    /** Takes n hits of integer scores, see {@link TopHits#addCounted}; the threshold from now on. */
    public float collectCounted(long[] found, int n) throws IOException {
      hits.addCounted(found, n, docBase);
      return hits.threshold();
    }

    private void skipWorse() throws IOException {
      if (hits.threshold() > 0) {
        scorer.setMinCompetitiveScore(Math.min(hits.threshold(), Float.MAX_VALUE)); // Lucene skips all for infinity
      }
    }
  }
}
