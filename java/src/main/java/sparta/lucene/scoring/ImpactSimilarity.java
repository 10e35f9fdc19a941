package sparta.lucene.scoring;

import org.apache.lucene.index.FieldInvertState;
import org.apache.lucene.search.CollectionStatistics;
import org.apache.lucene.search.TermStatistics;
import org.apache.lucene.search.similarities.BM25Similarity;
import org.apache.lucene.search.similarities.PerFieldSimilarityWrapper;
import org.apache.lucene.search.similarities.Similarity;
import sparta.lucene.util.IndexFields;

/**
 * Scores a term with its weight in the query times its impact in the passage, and nothing else.
 *
 * <p>The product is a float32, so it is exact as long as it fits into 24 bits: always, when weights are small
 * integers, as counts of repeated query terms are.
 */
public final class ImpactSimilarity extends Similarity {
  /** BM25's k1 and b as Pyserini has them by default. */
  public static final float K1 = 0.9f, B = 0.4f;

  @Override
  public long computeNorm(FieldInvertState state) {
    return 1;
  }

  @Override
  public SimScorer scorer(float boost, CollectionStatistics collection, TermStatistics... terms) {
    return new ImpactScorer(boost);
  }

  /** Impacts in {@link IndexFields#CONTENTS}, BM25 in every other field. */
  public static Similarity perField(float k1, float b) {
    Similarity impacts = new ImpactSimilarity();
    Similarity bm25 = new BM25Similarity(k1, b);
    return new PerFieldSimilarityWrapper() {
      @Override
      public Similarity get(String field) {
        return field.equals(IndexFields.CONTENTS) ? impacts : bm25;
      }
    };
  }

  private static final class ImpactScorer extends SimScorer {
    private final float weight;

    ImpactScorer(float weight) {
      this.weight = weight;
    }

    @Override
    public float score(float impact, long norm) {
      return weight * impact;
    }

    @Override
    public BulkSimScorer asBulkSimScorer() {
      return (size, impacts, norms, scores) -> {
        for (int i = 0; i < size; i++) {
          scores[i] = weight * impacts[i];
        }
      };
    }
  }
}
