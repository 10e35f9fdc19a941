package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

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
  void nothingAtAll() throws IOException {
    assertEquals(List.of(), written(inverted(vocabulary(), null, null, null)));
  }

  /** Buffers that are full again and again, in several threads: every impact is there once, in its own document. */
  @ParameterizedTest
  @ValueSource(strings = {"fast", "lucene"})
  void fullBuffersLoseNothing(String codec, @TempDir Path folder) throws IOException {
    Corpus corpus = Corpus.random(new Random(5), 6000, 400, 70_000);
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "en", 3, 1, codec)) {
      writer.addTerms(corpus.terms());
      for (int i = 0; i < 6000; i += 500) {
        corpus.add(writer, corpus.passages.subList(i, i + 500), false);
      }
      writer.commit("");
      corpus.add(writer, corpus.passages.subList(0, 700), true);
      writer.commit("");
    }
    Map<String, Map<Integer, Integer>> expected = new TreeMap<>();
    corpus.passages.forEach(passage -> expected.put(passage.id(), passage.impacts()));
    try (DirectoryReader reader = DirectoryReader.open(FSDirectory.open(folder))) {
      assertTrue(reader.leaves().size() > 1);
      assertEquals(expected, impacts(reader));
    }
  }

  private static Map<String, Map<Integer, Integer>> impacts(DirectoryReader reader) throws IOException {
    Map<String, Map<Integer, Integer>> found = new TreeMap<>();
    for (LeafReaderContext leaf : reader.leaves()) {
      String[] ids = new String[leaf.reader().maxDoc()];
      BinaryDocValues values = leaf.reader().getBinaryDocValues(Fields.ID);
      for (int doc = values.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = values.nextDoc()) {
        if (leaf.reader().getLiveDocs() == null || leaf.reader().getLiveDocs().get(doc)) {
          ids[doc] = values.binaryValue().utf8ToString();
          found.put(ids[doc], new TreeMap<>());
        }
      }
      TermsEnum each = leaf.reader().terms(Fields.CONTENTS).iterator();
      for (BytesRef term = each.next(); term != null; term = each.next()) {
        int id = Integer.parseInt(term.utf8ToString().substring(Corpus.term(0).length() - 1));
        PostingsEnum postings = each.postings(null, PostingsEnum.FREQS);
        for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
          if (ids[doc] != null) {
            found.get(ids[doc]).put(id, postings.freq());
          }
        }
      }
    }
    return found;
  }
}
