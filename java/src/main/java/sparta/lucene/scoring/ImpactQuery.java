package sparta.lucene.scoring;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.QueryVisitor;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.filtering.KeptDocs;

/**
 * The sum of weight × impact over some terms of a field; finds the documents that have one of them.
 *
 * <p>Scores are integers, exact below 2^24, whatever similarity the searcher has. Segments of
 * {@link sparta.lucene.codec.ImpactPostingsFormat} are summed range by range ({@link ImpactScorer}) as integers; all others, sums that may
 * be larger and boosted queries by Lucene's term queries: float32 products, added in double precision, the sum rounded
 * once to float32.
 */
public final class ImpactQuery extends Query {
  final String field;
  final BytesRef[] terms;
  final int[] weights;
  final KeptDocs kept;

  /**
   * @param field a field of impacts
   * @param weights distinct terms, each with a weight above 0
   */
  public ImpactQuery(String field, Map<BytesRef, Integer> weights) {
    this(field, weights, null);
  }

  /** The same among the kept documents alone. */
  public ImpactQuery(String field, Map<BytesRef, Integer> weights, KeptDocs kept) {
    this.field = field;
    this.kept = kept;
    this.terms = new BytesRef[weights.size()];
    this.weights = new int[weights.size()];
    int i = 0;
    for (Map.Entry<BytesRef, Integer> entry : weights.entrySet()) {
      int weight = entry.getValue();
      if (weight < 1) {
        throw new IllegalArgumentException(
            "term " + entry.getKey().utf8ToString() + " has weight " + weight + "; weights are 1 or more");
      }
      terms[i] = BytesRef.deepCopyOf(entry.getKey());
      this.weights[i++] = weight;
    }
  }

  /** The same in Lucene's own queries; they need {@link ImpactSimilarity} to score the same. */
  Query plain() {
    Map<BytesRef, Integer> bag = new LinkedHashMap<>();
    for (int i = 0; i < terms.length; i++) {
      bag.put(terms[i], weights[i]);
    }
    return new TermSumQuery(field, bag, kept);
  }

  @Override
  public Weight createWeight(IndexSearcher searcher, ScoreMode scoreMode, float boost) {
    return new ImpactWeight(this, searcher, scoreMode, boost);
  }

  @Override
  public void visit(QueryVisitor visitor) {
    if (visitor.acceptField(field)) {
      QueryVisitor optional = visitor.getSubVisitor(BooleanClause.Occur.SHOULD, this);
      optional.consumeTerms(this, Arrays.stream(terms).map(term -> new Term(field, term)).toArray(Term[]::new));
    }
  }

  @Override
  public String toString(String defaultField) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < terms.length; i++) {
      text.append(i > 0 ? " " : "");
      text.append(field.equals(defaultField) ? "" : field + ":").append(terms[i].utf8ToString());
      text.append('^').append(weights[i]);
    }
    return "impacts(" + text + ")";
  }

  @Override
  public boolean equals(Object other) {
    return sameClassAs(other)
        && field.equals(((ImpactQuery) other).field)
        && kept == ((ImpactQuery) other).kept
        && Arrays.equals(terms, ((ImpactQuery) other).terms)
        && Arrays.equals(weights, ((ImpactQuery) other).weights);
  }

  @Override
  public int hashCode() {
    return 31 * (31 * (31 * classHash() + field.hashCode()) + Arrays.hashCode(terms)) + Arrays.hashCode(weights);
  }
}
