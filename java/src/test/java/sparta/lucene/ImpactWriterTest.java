package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.store.LockObtainFailedException;
import org.apache.lucene.util.BytesRef;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

class ImpactWriterTest {
  @TempDir Path folder;

  private ImpactWriter open() throws IOException {
    return new ImpactWriter(folder.toString(), "english", 2, 16);
  }

  private int numDocs() throws IOException {
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      return searcher.numDocs();
    }
  }

  private static Corpus corpus(int n) {
    return Corpus.random(new java.util.Random(n), n, 10, 255);
  }

  @Test
  void onlyCommitsLast() throws IOException {
    Corpus corpus = corpus(500);
    try (ImpactWriter writer = open()) {
      writer.addTerms(corpus.knownTerms());
      corpus.add(writer, corpus.passages.subList(0, 200), false);
      writer.commit("{\"next\": 200}");
      corpus.add(writer, corpus.passages.subList(200, 400), false);
    }
    assertEquals(200, numDocs());
    ImpactWriter writer = open();
    writer.addTerms(corpus.knownTerms());
    corpus.add(writer, corpus.passages.subList(400, 500), false);
    writer.rollback();
    assertEquals(0, writer.pendingBytes());
    writer.close();
    assertEquals(200, numDocs());
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals("{\"next\": 200}", searcher.userData());
    }
    try (ImpactWriter again = open()) {
      again.commit("{\"next\": 201}");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals("{\"next\": 201}", searcher.userData());
    }
  }

  @Test
  void theLastUpdateWins() throws IOException {
    Corpus corpus = new Corpus(1);
    try (ImpactWriter writer = open()) {
      writer.addTerms(corpus.knownTerms());
      for (int round = 0; round < 40; round++) {
        List<Corpus.Passage> batch = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
          batch.add(new Corpus.Passage("p" + i % 25, round * 100L + i, Map.of(0, 1 + round)));
        }
        corpus.add(writer, batch, true);
      }
      writer.commit("");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals(25, searcher.numDocs());
      List<Corpus.Hit> hits =
          Corpus.unpack(searcher, searcher.searchImpacts(Corpus.pack(List.of(Map.of(0, 1))), Corpus.ALL, 100, 1)).get(0);
      for (int i = 0; i < 25; i++) {
        assertEquals(new Corpus.Hit("p" + i, 40, 3925 + i), hits.get(i));
      }
    }
  }

  @Test
  void deleteCountsEachMatchOnce() throws IOException {
    Corpus corpus = corpus(10);
    try (ImpactWriter writer = open()) {
      writer.addTerms(corpus.knownTerms());
      corpus.add(writer, corpus.passages, false);
      corpus.add(writer, corpus.passages.subList(0, 2), false);
      assertEquals(3, writer.delete(StringTable.of("p0", "p5", "p0", "nobody")));
      assertEquals(0, writer.delete(StringTable.of("p0", "p5")));
      writer.commit("");
    }
    assertEquals(9, numDocs());
  }

  @Test
  void removeDeletesWhatWasQueuedBefore() throws IOException {
    Corpus corpus = corpus(10);
    try (ImpactWriter writer = open()) {
      writer.addTerms(corpus.knownTerms());
      corpus.add(writer, corpus.passages, false);
      writer.remove(StringTable.of("p0", "p5", "p0", "nobody"));
      corpus.add(writer, corpus.passages.subList(0, 1), false);
      writer.commit("");
    }
    assertEquals(9, numDocs());
  }

  @Test
  void theVocabularyGrowsBetweenBatches() throws IOException {
    try (ImpactWriter writer = open()) {
      for (int i = 0; i < 3000; i++) {
        writer.addTerms(StringTable.of("a-long-enough-term-to-make-the-array-grow-" + i));
        Corpus one = new Corpus(9000); // knows the terms below 6000 by their ids
        one.add(writer, List.of(new Corpus.Passage("p" + i, i, Map.of(i, 7))), false);
      }
      writer.commit("");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      for (int i : new int[] {0, 1, 1499, 2999}) {
        int docid = Packed.ints(searcher.docids(StringTable.of("p" + i)), "docids")[0];
        byte[] term = StringTable.of("a-long-enough-term-to-make-the-array-grow-" + i);
        assertEquals(7, Packed.ints(searcher.impacts(docid, term), "impacts")[0]);
      }
    }
  }

  @Test
  void aSecondWriterIsRefused() throws IOException {
    try (ImpactWriter first = open()) {
      assertThrows(LockObtainFailedException.class, this::open);
      first.commit("");
    }
    open().close();
  }

  @Test
  void aClosedWriterRefusesCalls() throws IOException {
    ImpactWriter writer = open();
    writer.close();
    writer.close();
    assertThrows(IllegalStateException.class, () -> writer.commit(""));
    assertThrows(IllegalStateException.class, () -> writer.addTerms(StringTable.of("a")));
  }

  @Test
  void aWrongBatchIsRefusedWhole() throws IOException {
    try (ImpactWriter writer = open()) {
      writer.addTerms(StringTable.of("a", "b"));
      int[] good = {0, 1, 2};
      refused(writer, "indptr: expected 3 entries, found 2", 2, new int[] {0, 2}, new int[] {0, 1}, new int[] {1, 1});
      refused(writer, "indptr must end with 2, found 3", 2, new int[] {0, 1, 3}, new int[] {0, 1}, new int[] {1, 1});
      refused(writer, "indptr falls from 2 to 1", 2, new int[] {0, 2, 1}, new int[] {0}, new int[] {1});
      refused(writer, "term id 2 is outside", 2, good, new int[] {0, 2}, new int[] {1, 1});
      refused(writer, "term id -1 is outside", 2, good, new int[] {-1, 1}, new int[] {1, 1});
      refused(writer, "impact 0 of", 2, good, new int[] {0, 1}, new int[] {1, 0});
      refused(writer, "impact -3 of", 2, good, new int[] {0, 1}, new int[] {-3, 1});
      refused(writer, "impacts: expected 2 entries, found 1", 2, good, new int[] {0, 1}, new int[] {1});
      refused(writer, "positions: expected 2 entries, found 1", 1, good, new int[] {0, 1}, new int[] {1, 1});
      int most = Integer.MAX_VALUE;
      refused(writer, "impacts that sum to", 2, new int[] {0, 2, 2}, new int[] {0, 1}, new int[] {most, 1});
      IllegalArgumentException longTerm =
          assertThrows(
              IllegalArgumentException.class, () -> writer.addTerms(StringTable.of("good", "x".repeat(32_767))));
      assertTrue(longTerm.getMessage().contains("32767 bytes"), longTerm.getMessage());
      writer.commit("");
    }
    assertEquals(0, numDocs());
  }

  private static void refused(
      ImpactWriter writer, String message, int positions, int[] indptr, int[] terms, int[] impacts) {
    byte[] two = StringTable.of("x", "y");
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                writer.add(
                    two,
                    two,
                    two,
                    Packed.bytes(new long[positions]),
                    Packed.bytes(indptr),
                    Packed.bytes(terms),
                    Packed.bytes(impacts),
                    StringTable.of(),
                    StringTable.of(),
                    Packed.bytes(new int[3]),
                    false));
    assertTrue(thrown.getMessage().contains(message), thrown.getMessage());
  }

  /** Buffers that are full again and again, in several threads: every impact is there once, in its own document. */
  @ParameterizedTest
  @ValueSource(strings = {"fast", "lucene"})
  void fullBuffersLoseNothing(String codec, @TempDir Path folder) throws IOException {
    Corpus corpus = Corpus.random(new Random(5), 6000, 400, 70_000);
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 3, 1, codec)) {
      writer.addTerms(corpus.knownTerms());
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
      BinaryDocValues values = leaf.reader().getBinaryDocValues(IndexFields.ID);
      for (int doc = values.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = values.nextDoc()) {
        if (leaf.reader().getLiveDocs() == null || leaf.reader().getLiveDocs().get(doc)) {
          ids[doc] = values.binaryValue().utf8ToString();
          found.put(ids[doc], new TreeMap<>());
        }
      }
      TermsEnum each = leaf.reader().terms(IndexFields.CONTENTS).iterator();
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
