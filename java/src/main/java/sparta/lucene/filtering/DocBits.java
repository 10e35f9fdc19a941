package sparta.lucene.filtering;

import java.io.IOException;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.search.ConstantScoreScorer;
import org.apache.lucene.search.ConstantScoreWeight;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.QueryVisitor;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.ScorerSupplier;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.BitSetIterator;

/** A query that knows its documents as bits; it is itself alone, and Lucene keeps no other copy of what it finds. */
abstract class DocBits extends Query {
  /** The documents of a segment, {@code null} for none. */
  abstract BitSetIterator found(LeafReaderContext leaf) throws IOException;

  @Override
  public final Weight createWeight(IndexSearcher searcher, ScoreMode scoreMode, float boost) {
    return new ConstantScoreWeight(this, boost) {
      @Override
      public ScorerSupplier scorerSupplier(LeafReaderContext leaf) throws IOException {
        BitSetIterator found = found(leaf);
        return found == null
            ? null
            : new DefaultScorerSupplier(new ConstantScoreScorer(score(), scoreMode, found));
      }

      @Override
      public boolean isCacheable(LeafReaderContext leaf) {
        return false;
      }
    };
  }

  @Override
  public final void visit(QueryVisitor visitor) {
    visitor.visitLeaf(this);
  }

  @Override
  public final boolean equals(Object other) {
    return this == other;
  }

  @Override
  public final int hashCode() {
    return System.identityHashCode(this);
  }
}
