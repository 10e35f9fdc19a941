package sparta.lucene.scoring;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.Terms;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.Explanation;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.search.ScorerSupplier;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.FixedBitSet;
import sparta.lucene.codec.ImpactTerms;
import sparta.lucene.codec.TermRanges;

/** Chooses, segment by segment, between our own scorer and Lucene's. */
final class ImpactWeight extends Weight {
  private final ImpactQuery query;
  private final IndexSearcher searcher;
  private final ScoreMode scoreMode;
  private final float boost;
  private Weight plain;

  ImpactWeight(ImpactQuery query, IndexSearcher searcher, ScoreMode scoreMode, float boost) {
    super(query);
    this.query = query;
    this.searcher = searcher;
    this.scoreMode = scoreMode;
    this.boost = boost;
  }

  @Override
  public ScorerSupplier scorerSupplier(LeafReaderContext leaf) throws IOException {
    Terms terms = leaf.reader().terms(query.field);
    if (terms == null) {
      return null;
    }
    if (boost != 1 || !(terms instanceof ImpactTerms impacts)) {
      return plain().scorerSupplier(leaf);
    }
    List<ScoredTerm> found = new ArrayList<>(query.terms.length);
    long bound = 0;
    ImpactTerms.Lookup lookup = impacts.lookup();
    for (int i = 0; i < query.terms.length; i++) {
      TermRanges postings = lookup.find(query.terms[i]);
      if (postings != null) {
        ScoredTerm term = new ScoredTerm(postings, query.weights[i]);
        found.add(term);
        bound += term.bound();
      }
    }
    if (found.isEmpty()) {
      return null;
    }
    return bound < IntSums.LIMIT ? new Supplier(leaf, found) : plain().scorerSupplier(leaf);
  }

  @Override
  public Explanation explain(LeafReaderContext leaf, int doc) throws IOException {
    return plain().explain(leaf, doc);
  }

  @Override
  public boolean isCacheable(LeafReaderContext leaf) {
    return true;
  }

  /** The weight of the same query in Lucene's terms, made when it is first needed. */
  private synchronized Weight plain() throws IOException {
    if (plain == null) {
      IndexSearcher own = new IndexSearcher(searcher.getTopReaderContext());
      own.setSimilarity(new ImpactSimilarity());
      own.setQueryCache(null);
      plain = own.createWeight(own.rewrite(query.plain()), scoreMode, boost);
    }
    return plain;
  }

  private final class Supplier extends ScorerSupplier {
    private final LeafReaderContext leaf;
    private final List<ScoredTerm> terms;

    Supplier(LeafReaderContext leaf, List<ScoredTerm> terms) {
      this.leaf = leaf;
      this.terms = terms;
    }

    @Override
    public BulkScorer bulkScorer() {
      FixedBitSet kept = query.kept == null ? null : query.kept.of(leaf);
      return new ImpactScorer(terms, leaf.reader().maxDoc(), cost(), kept);
    }

    /** Document by document, as a part of other queries. */
    @Override
    public Scorer get(long leadCost) throws IOException {
      return plain().scorerSupplier(leaf).get(leadCost);
    }

    @Override
    public long cost() {
      long cost = 0;
      for (ScoredTerm term : terms) {
        cost += term.postings().docFreq();
      }
      return cost;
    }
  }
}
