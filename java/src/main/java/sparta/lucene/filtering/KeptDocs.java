package sparta.lucene.filtering;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.BitSetIterator;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.FixedBitSet;

/** The live documents of one reader that a filter keeps, as bits; a clause of Lucene's queries too. */
public final class KeptDocs extends DocBits {
  private final FixedBitSet[] bits;
  private final int[] counts;

  private KeptDocs(FixedBitSet[] bits) {
    this.bits = bits;
    counts = new int[bits.length];
    for (int i = 0; i < bits.length; i++) {
      counts[i] = bits[i].cardinality();
    }
  }

  /** Those that a query finds. */
  public static KeptDocs of(Query filter, IndexSearcher searcher) throws IOException {
    return any(List.of(filter), searcher);
  }

  /** Those that at least one of some queries finds. */
  public static KeptDocs any(List<Query> filters, IndexSearcher searcher) throws IOException {
    FixedBitSet[] bits = empty(searcher);
    for (Query filter : filters) {
      Weight weight = searcher.createWeight(searcher.rewrite(filter), ScoreMode.COMPLETE_NO_SCORES, 1);
      for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
        Scorer found = weight.scorer(leaf);
        if (found != null) {
          bits[leaf.ord].or(found.iterator());
        }
      }
    }
    return live(bits, searcher);
  }

  /** Those that a query does not find. */
  public static KeptDocs not(Query filter, IndexSearcher searcher) throws IOException {
    FixedBitSet[] bits = of(filter, searcher).bits;
    for (FixedBitSet own : bits) {
      own.flip(0, own.length());
    }
    return live(bits, searcher);
  }

  private static FixedBitSet[] empty(IndexSearcher searcher) {
    return searcher.getIndexReader().leaves().stream()
        .map(leaf -> new FixedBitSet(leaf.reader().maxDoc()))
        .toArray(FixedBitSet[]::new);
  }

  /** The live documents among the bits, which are changed. */
  private static KeptDocs live(FixedBitSet[] bits, IndexSearcher searcher) {
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      Bits live = leaf.reader().getLiveDocs();
      if (live != null) {
        live.applyMask(bits[leaf.ord], 0);
      }
    }
    return new KeptDocs(bits);
  }

  /** Whether the filter keeps nothing. */
  public boolean isEmpty() {
    return Arrays.stream(counts).allMatch(count -> count == 0);
  }

  /** Those of one segment. */
  public FixedBitSet of(LeafReaderContext leaf) {
    return bits[leaf.ord];
  }

  /** Those of all segments, by the docids of the reader. */
  public FixedBitSet all(IndexSearcher searcher) {
    FixedBitSet all = new FixedBitSet(Math.max(1, searcher.getIndexReader().maxDoc()));
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      FixedBitSet.orRange(bits[leaf.ord], 0, all, leaf.docBase, bits[leaf.ord].length());
    }
    return all;
  }

  @Override
  BitSetIterator found(LeafReaderContext leaf) {
    return counts[leaf.ord] == 0 ? null : new BitSetIterator(bits[leaf.ord], counts[leaf.ord]);
  }

  @Override
  public String toString(String field) {
    return "kept documents";
  }
}
