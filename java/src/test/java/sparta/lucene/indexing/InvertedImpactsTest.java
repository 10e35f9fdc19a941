package sparta.lucene.indexing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.BytesRef;
import org.junit.jupiter.api.Test;
import sparta.lucene.util.IntSequence;
import sparta.lucene.util.StringTable;

class InvertedImpactsTest {
  private static Vocabulary.View vocabulary(String... terms) {
    Vocabulary vocabulary = new Vocabulary();
    vocabulary.append(StringTable.unpack(StringTable.of(terms), "terms"));
    return vocabulary.view();
  }

  private static List<String> written(Terms terms) throws IOException {
    List<String> found = new ArrayList<>();
    TermsEnum each = terms.iterator();
    PostingsEnum postings = null;
    for (BytesRef term = each.next(); term != null; term = each.next()) {
      StringBuilder line = new StringBuilder(term.utf8ToString());
      postings = each.postings(postings, PostingsEnum.FREQS);
      int docFreq = 0;
      long total = 0;
      for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
        line.append(' ').append(doc).append(':').append(postings.freq());
        docFreq++;
        total += postings.freq();
      }
      assertEquals(docFreq, each.docFreq());
      assertEquals(total, each.totalTermFreq());
      found.add(line.toString());
    }
    return found;
  }

  /** Documents of one batch, each given as its n term ids and then their n impacts; {@code null} for none. */
  private static InvertedImpacts inverted(Vocabulary.View vocabulary, int[]... documents) {
    return withOwn(vocabulary, new String[0], documents);
  }

  private static InvertedImpacts withOwn(Vocabulary.View vocabulary, String[] own, int[]... documents) {
    IntSequence indptr = new IntSequence();
    IntSequence terms = new IntSequence();
    IntSequence impacts = new IntSequence();
    indptr.add(0);
    for (int[] document : documents) {
      for (int i = 0; document != null && i < document.length / 2; i++) {
        terms.add(document[i]);
        impacts.add(document[document.length / 2 + i]);
      }
      indptr.add(terms.size());
    }
    String[] names = new String[documents.length];
    Arrays.fill(names, "");
    StringTable table = StringTable.unpack(StringTable.of(names), "names");
    DocumentBatch batch =
        new DocumentBatch(
            table,
            table,
            table,
            new long[documents.length],
            indptr.toArray(),
            terms.toArray(),
            impacts.toArray(),
            StringTable.unpack(StringTable.of(own), "own terms"),
            StringTable.unpack(StringTable.of(), "values"),
            new int[names.length + 1],
            vocabulary);
    InvertedImpacts.Document[] taken = new InvertedImpacts.Document[documents.length];
    for (int i = 0; i < documents.length; i++) {
      taken[i] = documents[i] == null ? null : batch.postings(i);
    }
    return new InvertedImpacts(taken, vocabulary);
  }

  @Test
  void termsComeInTheOrderOfTheirBytes() throws IOException {
    int[][] documents = {{2, 0, 7, 9}, null, {1, 5}, {}, {0, 2, 1, 1_000_000_000, 3, 4}};
    InvertedImpacts inverted = inverted(vocabulary("ü", "zebra", "a", "never"), documents);
    assertEquals(List.of("a 0:7 4:3", "zebra 2:5 4:4", "ü 0:9 4:1000000000"), written(inverted));
    assertEquals(3, inverted.size());
    assertEquals(4, inverted.getDocCount());
  }

  @Test
  void aTermGivenTwiceCountsWithTheSum() throws IOException {
    int[][] documents = {{0, 1, 0, 0, 3, 2, 4, 5}, {0, 0, 1, 1}};
    assertEquals(List.of("a 0:12 1:2", "b 0:2"), written(inverted(vocabulary("a", "b"), documents)));
  }

  @Test
  void twoNumbersOfOneTermAreRefused() {
    assertThrows(
        IllegalArgumentException.class, () -> inverted(vocabulary("a", "b", "a"), new int[] {0, 2, 1, 1}));
  }

  @Test
  void termsOfABatchStandAmongThoseOfTheVocabulary() throws IOException {
    int[][] documents = {{2, 0, 7, 9}, {4, 0, 1, 2}, null, {3, 2, 4, 4, 5, 6}};
    String[] own = {"new york", "aa", "new york"};
    assertEquals(
        List.of("aa 3:4", "b 0:9 1:2", "new york 0:7 1:1 3:11"),
        written(withOwn(vocabulary("b", "never"), own, documents)));
  }

  @Test
  void aTermOfABatchThatTheVocabularyHasIsRefused() {
    assertThrows(
        IllegalArgumentException.class,
        () -> withOwn(vocabulary("a"), new String[] {"a"}, new int[] {0, 1, 1, 1}));
  }

  @Test
  void nothingAtAll() throws IOException {
    assertEquals(List.of(), written(inverted(vocabulary(), null, null, null)));
  }
}
