package sparta.lucene.scoring;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.ConstantScoreScorer;
import org.apache.lucene.search.DisjunctionMaxQuery;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.Explanation;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.QueryVisitor;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.search.ScorerSupplier;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.filtering.KeptDocs;

/**
 * The sum of the scores of weighted terms, by the searcher's similarity; finds the documents that have one of them.
 *
 * <p>Lucene's {@link BooleanQuery} sums the terms if they are fewer than its limit on clauses, which holds for the whole
 * process. {@link TermSumScorer} sums more terms. Both add float32 scores in double precision and round the sum once.
 */
public final class TermSumQuery extends Query {
  private final List<Query> terms;
  private final KeptDocs kept;

  /** The documents that may be found are {@code kept}, {@code null} for all. */
  public TermSumQuery(String field, Map<BytesRef, ? extends Number> weights, KeptDocs kept) {
    this.kept = kept;
    terms =
        weights.entrySet().stream()
            .<Query>map(e -> new BoostQuery(new TermQuery(new Term(field, e.getKey())), e.getValue().floatValue()))
            .toList();
  }

  @Override
  public Query rewrite(IndexSearcher searcher) {
    return terms.size() < IndexSearcher.getMaxClauseCount() ? among(terms) : this; // one clause is for the kept
  }

  @Override
  public Weight createWeight(IndexSearcher searcher, ScoreMode scoreMode, float boost) throws IOException {
    List<Weight> weights = new ArrayList<>();
    for (Query term : terms) {
      weights.add(searcher.createWeight(term, scoreMode, boost));
    }
    Query plain = among(List.of(new DisjunctionMaxQuery(terms, 1)));
    return new Weight(this) {
      @Override
      public ScorerSupplier scorerSupplier(LeafReaderContext leaf) {
        return new ScorerSupplier() {
          @Override
          public BulkScorer bulkScorer() throws IOException {
            List<Scorer> scorers = new ArrayList<>();
            for (Weight weight : weights) {
              Scorer scorer = weight.scorer(leaf);
              if (scorer != null) {
                scorers.add(scorer);
              }
            }
            return new TermSumScorer(scorers, kept == null ? null : kept.of(leaf), leaf.reader().maxDoc());
          }

          /** Document by document, as a part of other queries. */
          @Override
          public Scorer get(long leadCost) throws IOException {
            Scorer scorer = plain.createWeight(searcher, scoreMode, boost).scorer(leaf);
            return scorer == null ? new ConstantScoreScorer(0, scoreMode, DocIdSetIterator.empty()) : scorer;
          }

          @Override
          public long cost() {
            return leaf.reader().maxDoc();
          }
        };
      }

      @Override
      public Explanation explain(LeafReaderContext leaf, int doc) throws IOException {
        return plain.createWeight(searcher, scoreMode, boost).explain(leaf, doc);
      }

      @Override
      public boolean isCacheable(LeafReaderContext leaf) {
        return false;
      }
    };
  }

  private Query among(List<Query> optional) {
    BooleanQuery.Builder query = new BooleanQuery.Builder();
    optional.forEach(clause -> query.add(clause, BooleanClause.Occur.SHOULD));
    if (kept != null) {
      query.add(kept, BooleanClause.Occur.FILTER).setMinimumNumberShouldMatch(1);
    }
    return query.build();
  }

  /** Lucene counts the leaves that a visitor sees: this is one. */
  @Override
  public void visit(QueryVisitor visitor) {
    visitor.visitLeaf(this);
  }

  @Override
  public String toString(String field) {
    return "sum" + terms;
  }

  @Override
  public boolean equals(Object other) {
    return sameClassAs(other)
        && kept == ((TermSumQuery) other).kept
        && terms.equals(((TermSumQuery) other).terms);
  }

  @Override
  public int hashCode() {
    return 31 * classHash() + terms.hashCode();
  }
}
