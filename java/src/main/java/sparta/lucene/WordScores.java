package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Scorer;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.Weight;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.Packed;

/** What each word of a query adds to the score of each of some documents; their sum is the score of a search. */
final class WordScores {
  private final IndexSearcher searcher;
  private final Lookup lookup;

  WordScores(IndexSearcher searcher, Lookup lookup) {
    this.searcher = searcher;
    this.lookup = lookup;
  }

  /** Float32, for each document all words in their order: 0 where the document lacks the word. */
  byte[] of(Map<BytesRef, Float> words, int[] docids) throws IOException {
    ByteBuffer out = Packed.writer((long) words.size() * docids.length * Float.BYTES);
    int column = 0;
    for (Map.Entry<BytesRef, Float> word : words.entrySet()) {
      Query one = new BoostQuery(new TermQuery(new Term(IndexFields.TEXT, word.getKey())), word.getValue());
      Weight weight = searcher.createWeight(searcher.rewrite(one), ScoreMode.COMPLETE, 1);
      int place = column++;
      lookup.inDocOrder(
          docids,
          leaf -> {
            Scorer scorer = weight.scorer(leaf);
            return (slot, doc) -> {
              if (scorer != null && at(scorer, doc)) {
                out.putFloat(Float.BYTES * (slot * words.size() + place), scorer.score());
              }
            };
          });
    }
    return out.array();
  }

  /** Whether the scorer's word stands in a document, which is none before that of the last call. */
  private static boolean at(Scorer scorer, int doc) throws IOException {
    return (scorer.docID() < doc ? scorer.iterator().advance(doc) : scorer.docID()) == doc;
  }
}
