package sparta.lucene.collecting;

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
import sparta.lucene.util.IndexFields;

/** Counts the documents that come before a given one in the order of {@link TopHits}. */
public final class RankCollector implements Collector {
  private final float score;
  private final long position;
  private int before;

  private RankCollector(float score, long position) {
    this.score = score;
    this.position = position;
  }

  /** For a document with this score and corpus position. */
  public static CollectorManager<RankCollector, Integer> manager(float score, long position) {
    return new CollectorManager<>() {
      @Override
      public RankCollector newCollector() {
        return new RankCollector(score, position);
      }

      @Override
      public Integer reduce(Collection<RankCollector> collectors) {
        return collectors.stream().mapToInt(collector -> collector.before).sum();
      }
    };
  }

  @Override
  public ScoreMode scoreMode() {
    return ScoreMode.TOP_SCORES;
  }

  @Override
  public LeafCollector getLeafCollector(LeafReaderContext leaf) throws IOException {
    NumericDocValues positions = DocValues.getNumeric(leaf.reader(), IndexFields.POSITION);
    return new LeafCollector() {
      private Scorable scorer;

      @Override
      public void setScorer(Scorable scorer) throws IOException {
        this.scorer = scorer;
        scorer.setMinCompetitiveScore(Math.min(score, Float.MAX_VALUE)); // Lucene skips all for infinity
      }

      @Override
      public void collect(int doc) throws IOException {
        float other = scorer.score();
        if (other > score || other == score && positions.advanceExact(doc) && positions.longValue() < position) {
          before++;
        }
      }
    };
  }
}
