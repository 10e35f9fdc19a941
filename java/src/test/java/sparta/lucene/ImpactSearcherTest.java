package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.lucene.index.IndexNotFoundException;
import org.apache.lucene.util.BytesRef;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/** What Lucene answers is what counting by hand answers. */
class ImpactSearcherTest {
  @TempDir Path folder;

  @ParameterizedTest(name = "{0} passages, impacts up to {2}, {3} commits, weighted {4}, seed {5}, {6}")
  @CsvSource({
    "1, 5, 255, 1, false, 1, fast",
    "40, 30, 2, 3, false, 2, mixed",
    "700, 40, 3, 1, false, 3, lucene",
    "700, 40, 3, 7, true, 4, mixed",
    "900, 60, 255, 5, false, 5, lucene",
    "900, 60, 256, 5, false, 5, fast",
    "900, 60, 65535, 4, false, 6, fast",
    "900, 60, 65535, 4, true, 7, mixed",
    "3000, 12, 1, 3, false, 8, fast",
    "6000, 8, 4, 2, false, 9, mixed",
    "6000, 8, 4, 2, true, 9, fast",
  })
  void equalsBruteForce(
      int n, int vocabulary, int highest, int commits, boolean weighted, long seed, String codec) throws IOException {
    Random random = new Random(seed);
    Corpus corpus = Corpus.random(random, n, vocabulary, highest);
    write(corpus, random, commits, codec);
    List<Map<Integer, Integer>> queries = new ArrayList<>();
    for (int i = 0; i < 60; i++) {
      queries.add(Corpus.randomQuery(random, vocabulary, weighted));
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals(corpus.passages.size(), searcher.numDocs());
      for (int k : new int[] {1, 2, 10, 100, n, n + 1000, Integer.MAX_VALUE}) {
        int threads = 1 + random.nextInt(3);
        List<List<Corpus.Hit>> found =
            Corpus.unpack(searcher, searcher.searchImpacts(Corpus.pack(queries), Corpus.ALL, k, threads));
        for (int q = 0; q < queries.size(); q++) {
          List<Corpus.Hit> all = corpus.search(queries.get(q));
          assertEquals(all.subList(0, Math.min(k, all.size())), found.get(q), "k " + k + ", query " + queries.get(q));
        }
      }
      ranks(searcher, corpus, queries.subList(0, 8));
      readsBack(searcher, corpus);
      postings(searcher, corpus);
    }
  }

  @Test
  void theSentencesOfAPassageAreThoseWithItsIdAndANumber() throws IOException {
    Corpus corpus = new Corpus(1);
    List<String> mine = List.of("p#0", "p#1", "p#10", "p#200", "p#65");
    List<String> others = List.of("p", "p#", "p#/", "p#0x", "p#0#1", "p#:", "p#x#0", "pp#0", "o#9", "q#0", "p\"#0");
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 2, 16)) {
      writer.addTerms(corpus.knownTerms());
      for (List<String> ids : List.of(mine, others, List.of("p#2", "p#3"))) {
        List<Corpus.Passage> batch = new ArrayList<>();
        for (String id : ids) {
          batch.add(new Corpus.Passage(id, 0, Map.of(0, 1)));
        }
        corpus.add(writer, batch, false);
        writer.commit(""); // each in a segment of its own
      }
      writer.remove(StringTable.of("p#2", "p#10"));
      writer.commit("");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals(List.of("p#0", "p#1", "p#200", "p#3", "p#65"), sentences(searcher, "p"));
      assertEquals(List.of("p#0#1"), sentences(searcher, "p#0"));
      assertEquals(List.of("o#9", "q#0"), sentences(searcher, "q", "nobody", "o", "q"));
      assertEquals(List.of(), sentences(searcher));
      assertEquals(List.of(), sentences(searcher, "zz"));
    }
  }

  private static List<String> sentences(ImpactSearcher searcher, String... ids) throws IOException {
    List<String> found = new ArrayList<>();
    for (BytesRef id : StringTable.unpack(searcher.sentences(StringTable.of(ids)), "sentences")) {
      found.add(id.utf8ToString());
    }
    return found;
  }

  /** Writes in one commit. */
  private void write(Corpus corpus) throws IOException {
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 2, 16)) {
      writer.addTerms(corpus.knownTerms());
      corpus.add(writer, corpus.passages, false);
      writer.commit("");
    }
  }

  /** Writes in several commits, some passages twice, and deletes a few: many segments, with holes. */
  private void write(Corpus corpus, Random random, int commits, String codec) throws IOException {
    int size = corpus.passages.size();
    for (int c = 0; c < commits; c++) {
      String format = codec.equals("mixed") ? c % 2 == 0 ? "fast" : "lucene" : codec;
      try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 3, 16, format)) {
        writer.addTerms(corpus.knownTerms());
        corpus.add(writer, corpus.passages.subList(size * c / commits, size * (c + 1) / commits), false);
        writer.commit("part " + c);
      }
    }
    String last = codec.equals("mixed") ? "lucene" : codec;
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 3, 16, last)) {
      writer.addTerms(corpus.knownTerms());
      List<Corpus.Passage> replacements = new ArrayList<>();
      Set<String> gone = new HashSet<>();
      for (int i = 0; i < size; i++) {
        Corpus.Passage old = corpus.passages.get(i);
        if (random.nextInt(10) == 0) {
          Map<Integer, Integer> impacts = new TreeMap<>(old.impacts());
          impacts.replaceAll((term, impact) -> 1 + impact / 2);
          Corpus.Passage passage = new Corpus.Passage(old.id(), old.position(), impacts);
          replacements.add(passage);
          corpus.passages.set(i, passage);
        } else if (size > 1 && random.nextInt(10) == 0) {
          gone.add(old.id());
        }
      }
      corpus.add(writer, replacements, true);
      int deleted = writer.delete(StringTable.of(gone.toArray(String[]::new)));
      assertEquals(gone.size(), deleted);
      gone.forEach(corpus::remove);
      writer.commit("done");
    }
  }

  private void ranks(ImpactSearcher searcher, Corpus corpus, List<Map<Integer, Integer>> queries) throws IOException {
    for (Map<Integer, Integer> query : queries) {
      List<String> expected = corpus.search(query).stream().map(Corpus.Hit::id).toList();
      for (int i = 0; i < corpus.passages.size(); i += 1 + corpus.passages.size() / 40) {
        String id = corpus.passages.get(i).id();
        int docid = Packed.ints(searcher.docids(StringTable.of(id)), "docids")[0];
        assertEquals(expected.indexOf(id) + 1, searcher.rank(Corpus.pack(List.of(query)), Corpus.ALL, docid));
      }
    }
  }

  private void readsBack(ImpactSearcher searcher, Corpus corpus) throws IOException {
    for (int i = 0; i < corpus.passages.size(); i += 1 + corpus.passages.size() / 50) {
      Corpus.Passage passage = corpus.passages.get(i);
      byte[] packed = searcher.docids(StringTable.of(passage.id(), "nobody"));
      int[] docids = Packed.ints(packed, "docids");
      assertEquals(-1, docids[1]);
      byte[] one = Packed.bytes(new int[] {docids[0]});
      assertEquals(passage.id(), StringTable.unpack(searcher.ids(one), "ids").string(0));
      assertEquals(passage.position(), Packed.longs(searcher.positions(one), "positions")[0]);
      String raw = "raw " + passage.id() + " at " + passage.position();
      assertEquals(raw, StringTable.unpack(searcher.raws(one), "raws").string(0));
      int[] impacts = Packed.ints(searcher.impacts(docids[0], corpus.terms()), "impacts");
      for (int term = 0; term < corpus.vocabulary; term++) {
        assertEquals(passage.impacts().getOrDefault(term, 0), impacts[term]);
      }
      assertEquals(byTerm(passage), vector(searcher, docids[0]));
    }
  }

  private static Map<String, Integer> byTerm(Corpus.Passage passage) {
    Map<String, Integer> expected = new TreeMap<>();
    passage.impacts().forEach((term, impact) -> expected.put(Corpus.term(term), impact));
    return expected;
  }

  private static Map<String, Integer> vector(ImpactSearcher searcher, int docid) throws IOException {
    ByteBuffer in = Packed.reader(searcher.vector(docid));
    int n = in.getInt();
    int[] impacts = Packed.ints(in, n, "impacts");
    StringTable terms = StringTable.unpack(in, "terms");
    Map<String, Integer> vector = new TreeMap<>();
    for (int i = 0; i < n; i++) {
      vector.put(terms.string(i), impacts[i]);
    }
    return vector;
  }

  private void postings(ImpactSearcher searcher, Corpus corpus) throws IOException {
    Map<String, Map<String, Integer>> expected = new TreeMap<>();
    for (Corpus.Passage passage : corpus.passages) {
      byTerm(passage).forEach((term, i) -> expected.computeIfAbsent(term, t -> new TreeMap<>()).put(passage.id(), i));
    }
    Map<String, Map<String, Integer>> found = new TreeMap<>();
    byte[] after = StringTable.of();
    while (true) {
      ByteBuffer in = Packed.reader(searcher.postings(after, 500));
      int t = in.getInt();
      if (t == 0) {
        break;
      }
      int[] indptr = Packed.ints(in, t + 1, "indptr");
      int[] docids = Packed.ints(in, indptr[t], "docids");
      int[] impacts = Packed.ints(in, indptr[t], "impacts");
      StringTable terms = StringTable.unpack(in, "terms");
      StringTable ids = StringTable.unpack(searcher.ids(Packed.bytes(docids)), "ids");
      for (int i = 0; i < t; i++) {
        Map<String, Integer> row = new TreeMap<>();
        for (int j = indptr[i]; j < indptr[i + 1]; j++) {
          assertTrue(j == indptr[i] || docids[j] > docids[j - 1]);
          row.put(ids.string(j), impacts[j]);
        }
        assertNull(found.put(terms.string(i), row));
      }
      after = StringTable.of(terms.string(t - 1));
    }
    assertEquals(expected, found);
    assertEquals(searcher.numDocs(), Packed.ints(searcher.live(), "live").length);
  }

  /** Skipping must stop short of hits that tie with the k-th: here the last indexed are the first of the corpus. */
  @ParameterizedTest
  @ValueSource(strings = {"lucene", "fast"})
  void tiesAreDecidedByPositionHoweverManyThereAre(String codec) throws IOException {
    int n = 30_000;
    Corpus corpus = new Corpus(3);
    for (int i = 0; i < n; i++) {
      Map<Integer, Integer> impacts = i % 3 == 0 ? Map.of(0, 5, 1, 2) : i % 3 == 1 ? Map.of(0, 7) : Map.of(1, 3, 2, 4);
      corpus.passages.add(new Corpus.Passage("p" + i, n - i, impacts));
    }
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 1, 64, codec)) {
      writer.addTerms(corpus.knownTerms());
      corpus.add(writer, corpus.passages, false);
      writer.forceMerge(1);
      writer.commit("");
    }
    Map<Integer, Integer> query = Map.of(0, 1, 1, 1, 2, 1);
    List<Corpus.Hit> all = corpus.search(query);
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      for (int k : new int[] {1, 10, 1500, 9_999, 29_999}) {
        byte[] found = searcher.searchImpacts(Corpus.pack(List.of(query)), Corpus.ALL, k, 1);
        assertEquals(all.subList(0, k), Corpus.unpack(searcher, found).get(0));
      }
    }
  }

  @Test
  void textIsFoundByItsWordsAndTiesByPosition() throws IOException {
    Corpus corpus = Corpus.random(new Random(5), 300, 5, 9);
    write(corpus);
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      byte[] queries = StringTable.of("Where is P17's word?", "passages", "", "the of", "unheard");
      List<List<Corpus.Hit>> found = Corpus.unpack(searcher, searcher.searchText(queries, Corpus.ALL, 20, 2));
      assertEquals("p17", found.get(0).get(0).id());
      assertEquals(20, found.get(1).size());
      for (int i = 0; i < 20; i++) {
        assertEquals(i, found.get(1).get(i).position());
      }
      assertEquals(List.of(List.of(), List.of(), List.of()), found.subList(2, 5));
    }
  }

  @Test
  void bothAtOnceFindWhatEachFinds() throws IOException {
    Corpus corpus = Corpus.random(new Random(6), 300, 5, 9);
    write(corpus);
    byte[] queries = Corpus.pack(List.of(Map.of(0, 1), Map.of(1, 2, 3, 1), Map.of()));
    byte[] texts = StringTable.of("p17", "passages", "unheard");
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      for (int threads = 1; threads <= 3; threads++) {
        List<List<Corpus.Hit>> expected =
            new ArrayList<>(Corpus.unpack(searcher, searcher.searchImpacts(queries, Corpus.ALL, 20, 1)));
        expected.addAll(Corpus.unpack(searcher, searcher.searchText(texts, Corpus.ALL, 20, 1)));
        assertEquals(expected, Corpus.unpack(searcher, searcher.searchBoth(queries, texts, Corpus.ALL, 20, threads)));
      }
      List<List<Corpus.Hit>> uneven =
          new ArrayList<>(Corpus.unpack(searcher, searcher.searchImpacts(queries, Corpus.ALL, 20, 1)));
      uneven.addAll(Corpus.unpack(searcher, searcher.searchText(StringTable.of("p17"), Corpus.ALL, 20, 1)));
      byte[] both = searcher.searchBoth(queries, StringTable.of("p17"), Corpus.ALL, 20, 1);
      assertEquals(uneven, Corpus.unpack(searcher, both));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchBoth(queries, texts, Corpus.ALL, 0, 1));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchBoth(queries, texts, Corpus.ALL, 1, 0));
    }
  }

  @Test
  void repeatedTermsAddUpAndZeroWeightsDoNothing() throws IOException {
    Corpus corpus = new Corpus(2);
    corpus.passages.add(new Corpus.Passage("a", 0, Map.of(0, 3)));
    corpus.passages.add(new Corpus.Passage("b", 1, Map.of(1, 3)));
    write(corpus);
    ByteBuffer head = Packed.writer(6 * Integer.BYTES);
    head.putInt(1).putInt(0).putInt(3).putInt(1).putInt(0).putInt(2);
    List<org.apache.lucene.util.BytesRef> terms = new ArrayList<>();
    for (String term : List.of("term0", "term1", "term0")) {
      terms.add(new org.apache.lucene.util.BytesRef(term));
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      byte[] found = searcher.searchImpacts(StringTable.pack(head.array(), terms), Corpus.ALL, 5, 1);
      assertEquals(List.of(List.of(new Corpus.Hit("a", 9, 0))), Corpus.unpack(searcher, found));
    }
  }

  @Test
  void anEmptyIndexAnswersWithNothing() throws IOException {
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 1, 16)) {
      writer.commit("empty");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      assertEquals("empty", searcher.userData());
      byte[] found = searcher.searchImpacts(Corpus.pack(List.of(Map.of(0, 1), Map.of())), Corpus.ALL, 10, 4);
      assertEquals(List.of(List.of(), List.of()), Corpus.unpack(searcher, found));
      assertArrayEquals(new int[] {0, 0}, Packed.ints(searcher.searchImpacts(Corpus.pack(List.of()), Corpus.ALL, 1, 1), "hits"));
      assertEquals(0, Packed.ints(searcher.live(), "live").length);
    }
  }

  @Test
  void refusesWhatMakesNoSense() throws IOException {
    Path missing = folder.resolve("missing");
    assertThrows(IndexNotFoundException.class, () -> new ImpactSearcher(missing.toString(), "english"));
    assertTrue(java.nio.file.Files.notExists(missing), "looking for an index must not make a folder");
    try (ImpactWriter writer = new ImpactWriter(folder.toString(), "english", 1, 16)) {
      writer.commit("");
    }
    try (ImpactSearcher searcher = new ImpactSearcher(folder.toString(), "english")) {
      byte[] query = Corpus.pack(List.of(Map.of(0, 1)));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchImpacts(query, Corpus.ALL, 0, 1));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchImpacts(query, Corpus.ALL, 1, 0));
      assertThrows(IllegalArgumentException.class, () -> searcher.rank(query, Corpus.ALL, 0));
      byte[] wrong = Corpus.pack(List.of(Map.of(0, -1)));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchImpacts(wrong, Corpus.ALL, 1, 1));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchImpacts(new byte[] {1, 2, 3}, Corpus.ALL, 1, 1));
      assertThrows(IllegalArgumentException.class, () -> searcher.searchImpacts(Packed.bytes(new int[] {-1}), Corpus.ALL, 1, 1));
    }
  }
}
