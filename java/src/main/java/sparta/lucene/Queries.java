package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.TermToBytesRefAttribute;
import org.apache.lucene.search.Query;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.filtering.KeptDocs;
import sparta.lucene.scoring.ImpactQuery;
import sparta.lucene.scoring.TermSumQuery;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/** Queries as they cross the border, and as Lucene takes them. */
final class Queries {
  private Queries() {}

  /**
   * Reads weighted queries: {@code int32 n, int32 indptr[n+1], int32 weights[m]} and a string table of m terms.
   *
   * <p>A term that a query has twice counts with the sum of its weights, one of weight 0 not at all.
   *
   * @param kept the documents that may be found, {@code null} for all
   */
  static Query[] impacts(byte[] packed, KeptDocs kept) {
    ByteBuffer in = Packed.reader(packed);
    int n = Packed.ints(in, 1, "queries")[0];
    if (n < 0 || n == Integer.MAX_VALUE) {
      throw new IllegalArgumentException("queries: a number of " + n);
    }
    int[] indptr = Packed.ints(in, n + 1, "indptr of the queries");
    int m = indptr[n];
    int[] weights = Packed.ints(in, m, "weights of the queries");
    StringTable terms = StringTable.unpack(in, "terms of the queries");
    Packed.checkOffsets(indptr, terms.size(), "indptr of the queries");
    Query[] queries = new Query[n];
    for (int q = 0; q < n; q++) {
      Map<BytesRef, Integer> bag = new LinkedHashMap<>();
      for (int i = indptr[q]; i < indptr[q + 1]; i++) {
        addWeight(bag, terms.bytes(i), weights[i]);
      }
      queries[q] = new ImpactQuery(IndexFields.CONTENTS, bag, kept);
    }
    return queries;
  }

  /** A search for the words of a text, each weighted by how often it occurs, among the kept documents. */
  static Query text(String text, Analyzer analyzer, KeptDocs kept) throws IOException {
    return new TermSumQuery(IndexFields.TEXT, words(text, analyzer), kept);
  }

  /** The words of a text with how often each occurs, in the order of their first places. */
  static Map<BytesRef, Float> words(String text, Analyzer analyzer) throws IOException {
    Map<BytesRef, Float> bag = new LinkedHashMap<>();
    try (TokenStream tokens = analyzer.tokenStream(IndexFields.TEXT, text)) {
      TermToBytesRefAttribute word = tokens.getAttribute(TermToBytesRefAttribute.class);
      tokens.reset();
      while (tokens.incrementToken()) {
        bag.merge(BytesRef.deepCopyOf(word.getBytesRef()), 1f, Float::sum);
      }
      tokens.end();
    }
    return bag;
  }

  private static void addWeight(Map<BytesRef, Integer> bag, BytesRef term, int weight) {
    if (weight < 0) {
      throw new IllegalArgumentException(
          "term " + term.utf8ToString() + " has weight " + weight + "; weights are not negative");
    }
    if (weight > 0) {
      bag.merge(term, weight, Math::addExact);
    }
  }
}
