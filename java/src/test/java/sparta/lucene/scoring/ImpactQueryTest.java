package sparta.lucene.scoring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.CheckIndex;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Term;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.index.TieredMergePolicy;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.Sort;
import org.apache.lucene.search.SortField;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.store.Directory;
import org.apache.lucene.util.BytesRef;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import sparta.lucene.codec.ImpactCodec;
import sparta.lucene.codec.ImpactPostings;
import sparta.lucene.collecting.HitList;
import sparta.lucene.collecting.TopHitsCollector;
import sparta.lucene.filtering.KeptDocs;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.IntSequence;

/** Our format and query beside sums by hand and Lucene's own queries, on matrices of every shape. */
class ImpactQueryTest {
  private record Hit(float score, long position) {}

  private static final String FIELD = IndexFields.CONTENTS;

  /** Impacts by term and document, 0 where there is none; documents in the order of their positions. */
  private int[][] matrix;

  private int documents;

  /**
   * Densities are per mille, one a term; 0 is a term of one document. The sizes are those around a range, the impacts
   * those around the widths of lists.
   */
  @ParameterizedTest(name = "{0} documents, densities {1}, impacts up to {2}, {3} segments, {4}, seed {5}")
  @CsvSource({
    "1, 1000 1000 0, 255, 1, plain, 1",
    "7, 1000 500 0, 1, 2, deletes, 2",
    "8191, 1000 400 200 5 0, 255, 1, plain, 3",
    "8192, 1000 400 200 5 0, 255, 1, plain, 4",
    "8193, 1000 400 200 5 0, 255, 1, merged, 5",
    "8200, 1000 1000 1000, 1, 1, deletes, 6",
    "20000, 900 600 300 260 240 100 30 10 3 1 0, 255, 1, merged, 7",
    "20000, 900 600 300 260 240 100 30 10 3 1 0, 127, 4, deletes, 8",
    "20000, 900 600 300 260 240 100 30 10 3 1 0, 256, 3, merged, 9",
    "20000, 900 300 100 30 10 3 1 0, 65535, 2, deletes, 10",
    "20000, 900 300 100 30 10 3 1 0, 70000, 1, sorted, 11",
    "20000, 900 300 100 30 10 3 1 0, 200000000, 2, merged, 12",
    "20000, 900 600 300 260 240 100 30 10 3 1 0, 3, 5, sorted, 13",
    "40000, 999 500 40 4 0 0 0, 200, 3, sorted, 14",
  })
  void answersAsCountingByHand(int n, String densities, int highest, int segments, String treatment, long seed)
      throws IOException {
    Random random = new Random(seed);
    fill(random, n, Arrays.stream(densities.split(" ")).mapToInt(Integer::parseInt).toArray(), highest);
    BitSet deleted = new BitSet();
    try (Directory directory = new ByteBuffersDirectory()) {
      write(directory, random, segments, treatment, deleted);
      try (CheckIndex check = new CheckIndex(directory)) {
        check.setLevel(CheckIndex.Level.MIN_LEVEL_FOR_SLOW_CHECKS);
        assertTrue(check.checkIndex().clean);
      }
      try (DirectoryReader reader = DirectoryReader.open(directory)) {
        readsBack(reader, deleted);
        for (int i = 0; i < 12; i++) {
          Map<BytesRef, Integer> query = randomQuery(random, i % 3 == 2);
          search(reader, query, deleted);
          filtered(reader, query, deleted, random);
        }
      }
    }
  }

  /** Lucene's limit on clauses holds for the whole process, so it is left as it is. */
  @Test
  void sumsMoreTermsThanLucenesLimit() throws IOException {
    Random random = new Random(15);
    int limit = IndexSearcher.getMaxClauseCount();
    assertEquals(1024, limit);
    fill(random, 9000, IntStream.range(0, limit + 100).map(term -> term % 7).toArray(), 255);
    BitSet deleted = new BitSet();
    try (Directory directory = new ByteBuffersDirectory()) {
      write(directory, random, 2, "deletes", deleted);
      try (DirectoryReader reader = DirectoryReader.open(directory)) {
        for (int terms : new int[] {limit - 1, limit, limit + 1, limit + 100}) {
          Map<BytesRef, Integer> query = new LinkedHashMap<>();
          IntStream.range(0, terms).forEach(term -> query.put(new BytesRef("t" + term), 1 + random.nextInt(5)));
          search(reader, query, deleted);
          filtered(reader, query, deleted, random);
          Query plain = new ImpactQuery(FIELD, query).plain();
          IndexSearcher searcher = new IndexSearcher(reader);
          searcher.setSimilarity(new ImpactSimilarity());
          ScoreDoc best = searcher.search(plain, 1).scoreDocs[0];
          assertEquals(best.score, searcher.explain(plain, best.doc).getValue().floatValue());
        }
      }
    }
  }

  private void fill(Random random, int n, int[] densities, int highest) {
    documents = n;
    matrix = new int[densities.length][n];
    for (int term = 0; term < densities.length; term++) {
      for (int doc = 0; doc < n; doc++) {
        if (random.nextInt(1000) < densities[term]) {
          matrix[term][doc] = impact(random, highest);
        }
      }
      matrix[term][random.nextInt(n)] = highest; // no term is empty, and each has the extreme
    }
  }

  /** Mostly small, like learned impacts; now and then as high as may be. */
  private static int impact(Random random, int highest) {
    return 1 + random.nextInt(random.nextInt(50) == 0 ? highest : Math.min(highest, 300));
  }

  private void write(Directory directory, Random random, int segments, String treatment, BitSet deleted)
      throws IOException {
    IndexWriterConfig config =
        new IndexWriterConfig().setCodec(new ImpactCodec()).setMergePolicy(NoMergePolicy.INSTANCE);
    if (treatment.equals("sorted")) {
      config.setIndexSort(new Sort(new SortField(IndexFields.POSITION, SortField.Type.LONG, true)));
    }
    if (treatment.equals("merged")) {
      config.setMergePolicy(new TieredMergePolicy());
    }
    List<Integer> order = new ArrayList<>();
    for (int doc = 0; doc < documents; doc++) {
      order.add(doc);
    }
    if (!treatment.equals("plain")) {
      Collections.shuffle(order, random);
    }
    try (IndexWriter writer = new IndexWriter(directory, config)) {
      for (int i = 0; i < documents; i++) {
        writer.addDocument(document(order.get(i)));
        if (i % Math.max(1, documents / segments) == 0) {
          writer.flush();
        }
      }
      if (!treatment.equals("plain")) {
        for (int doc = 0; doc < documents - 1; doc++) {
          if (random.nextInt(6) == 0) {
            deleted.set(doc);
            writer.deleteDocuments(new Term(IndexFields.ID, "d" + doc));
          }
        }
      }
      writer.commit();
      if (treatment.equals("merged")) {
        writer.forceMerge(1);
        writer.commit();
      }
    }
  }

  private Document document(int doc) {
    List<String> terms = new ArrayList<>();
    IntSequence impacts = new IntSequence();
    for (int term = 0; term < matrix.length; term++) {
      if (matrix[term][doc] > 0) {
        terms.add("t" + term);
        impacts.add(matrix[term][doc]);
      }
    }
    ImpactTokenStream tokens = new ImpactTokenStream(terms.toArray(String[]::new), impacts.toArray());
    Document document = new Document();
    document.add(new StringField(IndexFields.ID, "d" + doc, Field.Store.NO));
    document.add(new NumericDocValuesField(IndexFields.POSITION, doc));
    document.add(new Field(FIELD, tokens, IndexFields.CONTENTS_TYPE));
    return document;
  }

  /** Postings, read forward and by jumps. */
  private void readsBack(DirectoryReader reader, BitSet deleted) throws IOException {
    Random random = new Random(1);
    for (int term = 0; term < matrix.length; term++) {
      int seen = 0;
      for (LeafReaderContext leaf : reader.leaves()) {
        TermsEnum cursor = leaf.reader().terms(FIELD).iterator();
        if (!cursor.seekExact(new BytesRef("t" + term))) {
          continue;
        }
        PostingsEnum postings = cursor.postings(null, PostingsEnum.FREQS);
        assertInstanceOf(ImpactPostings.class, postings);
        long[] positions = positions(leaf);
        IntSequence docs = new IntSequence();
        while (postings.nextDoc() != PostingsEnum.NO_MORE_DOCS) {
          assertEquals(matrix[term][(int) positions[postings.docID()]], postings.freq());
          docs.add(postings.docID());
          seen += deleted.get((int) positions[postings.docID()]) ? 0 : 1;
        }
        assertEquals(cursor.docFreq(), docs.size());
        jumps(cursor.postings(postings, PostingsEnum.NONE), docs, random);
      }
      int expected = 0;
      for (int doc = 0; doc < documents; doc++) {
        expected += matrix[term][doc] > 0 && !deleted.get(doc) ? 1 : 0;
      }
      assertEquals(expected, seen);
    }
  }

  private static void jumps(PostingsEnum postings, IntSequence docs, Random random) throws IOException {
    int[] all = docs.toArray();
    int target = 0;
    while (true) {
      target += 1 + random.nextInt(random.nextBoolean() ? 5 : 9000);
      int at = Arrays.binarySearch(all, target);
      at = at < 0 ? -at - 1 : at;
      if (at == all.length) {
        assertEquals(PostingsEnum.NO_MORE_DOCS, postings.advance(target));
        return;
      }
      assertEquals(all[at], postings.advance(target));
      target = all[at];
    }
  }

  private static long[] at(long[] positions, int[] docids) {
    return Arrays.stream(docids).mapToLong(docid -> positions[docid]).toArray();
  }

  private static long[] positions(DirectoryReader reader) throws IOException {
    long[] positions = new long[reader.maxDoc()];
    for (LeafReaderContext leaf : reader.leaves()) {
      System.arraycopy(positions(leaf), 0, positions, leaf.docBase, leaf.reader().maxDoc());
    }
    return positions;
  }

  private static long[] positions(LeafReaderContext leaf) throws IOException {
    long[] positions = new long[leaf.reader().maxDoc()];
    var values = leaf.reader().getNumericDocValues(IndexFields.POSITION);
    while (values.nextDoc() != PostingsEnum.NO_MORE_DOCS) {
      positions[values.docID()] = values.longValue();
    }
    return positions;
  }

  private Map<BytesRef, Integer> randomQuery(Random random, boolean weighted) {
    Map<BytesRef, Integer> query = new LinkedHashMap<>();
    for (int i = 0; i < 1 + random.nextInt(matrix.length); i++) {
      int weight = 1 + random.nextInt(!weighted ? 3 : random.nextBoolean() ? 15 : 2000);
      query.put(new BytesRef("t" + random.nextInt(matrix.length)), weight);
    }
    return query;
  }

  private void search(DirectoryReader reader, Map<BytesRef, Integer> weights, BitSet deleted) throws IOException {
    ImpactQuery query = new ImpactQuery(FIELD, weights);
    IndexSearcher searcher = new IndexSearcher(reader);
    compare(searcher, query, byHand(weights, deleted));
    asLucene(searcher, query);
  }

  /** Among few documents, many, side by side or scattered: those of all that are kept. */
  private void filtered(DirectoryReader reader, Map<BytesRef, Integer> weights, BitSet deleted, Random random)
      throws IOException {
    IndexSearcher searcher = new IndexSearcher(reader);
    double share = Math.pow(random.nextDouble(), 3);
    boolean scattered = random.nextBoolean();
    int first = random.nextInt(documents);
    BitSet left = new BitSet();
    left.or(deleted);
    List<Long> positions = new ArrayList<>();
    for (int doc = 0; doc < documents; doc++) {
      if (scattered ? random.nextDouble() < share : first <= doc && doc < first + share * documents) {
        positions.add((long) doc);
      } else {
        left.set(doc);
      }
    }
    Query filter =
        NumericDocValuesField.newSlowSetQuery(
            IndexFields.POSITION, positions.stream().mapToLong(Long::longValue).toArray());
    KeptDocs kept = KeptDocs.of(filter, searcher);
    compare(searcher, new ImpactQuery(FIELD, weights, kept), byHand(weights, left));
    searcher.setSimilarity(new ImpactSimilarity());
    compare(searcher, new ImpactQuery(FIELD, weights, kept).plain(), byHand(weights, left));
  }

  private void compare(IndexSearcher searcher, Query query, List<Hit> all) throws IOException {
    long[] positions = positions((DirectoryReader) searcher.getIndexReader());
    for (int k : new int[] {1, 2, 3, 10, 100, 1000, Math.max(1, all.size() - 1), documents, Integer.MAX_VALUE}) {
      HitList hits = searcher.search(query, TopHitsCollector.manager(k, docids -> at(positions, docids)));
      assertEquals(Math.min(k, all.size()), hits.size());
      for (int i = 0; i < hits.size(); i++) {
        assertEquals(all.get(i).position(), positions[hits.docids()[i]], "k " + k + ", hit " + i);
        assertEquals(all.get(i).score(), hits.scores()[i]);
      }
    }
  }

  private List<Hit> byHand(Map<BytesRef, Integer> weights, BitSet deleted) {
    List<Hit> all = new ArrayList<>();
    for (int doc = 0; doc < documents; doc++) {
      double sum = 0;
      for (Map.Entry<BytesRef, Integer> entry : weights.entrySet()) {
        int term = Integer.parseInt(entry.getKey().utf8ToString().substring(1));
        sum += (float) entry.getValue() * matrix[term][doc];
      }
      if (sum > 0 && !deleted.get(doc)) {
        all.add(new Hit((float) sum, doc));
      }
    }
    all.sort(Comparator.comparingDouble((Hit hit) -> -hit.score()).thenComparingLong(Hit::position));
    return all;
  }

  /** Lucene's own collectors, filters and counts find the same with our query as with Lucene's. */
  private static void asLucene(IndexSearcher searcher, ImpactQuery query) throws IOException {
    IndexSearcher plain = new IndexSearcher(searcher.getIndexReader());
    plain.setSimilarity(new ImpactSimilarity());
    TopDocs top = plain.search(query.plain(), 20);
    same(top, searcher.search(query, 20));
    assertEquals(plain.count(query.plain()), searcher.count(query));
    if (top.scoreDocs.length > 0 && top.scoreDocs[0].score >= 1 << 22) {
      return; // as a part of another query ours is rounded before the rest is added
    }
    for (BooleanClause.Occur occur : BooleanClause.Occur.values()) {
      Query other = new TermQuery(new Term(FIELD, "t0"));
      same(plain.search(with(query.plain(), other, occur), 20), plain.search(with(query, other, occur), 20));
    }
  }

  private static Query with(Query query, Query other, BooleanClause.Occur occur) {
    return new BooleanQuery.Builder().add(query, BooleanClause.Occur.MUST).add(other, occur).build();
  }

  private static void same(TopDocs expected, TopDocs found) {
    assertEquals(expected.scoreDocs.length, found.scoreDocs.length);
    for (int i = 0; i < expected.scoreDocs.length; i++) {
      ScoreDoc a = expected.scoreDocs[i];
      ScoreDoc b = found.scoreDocs[i];
      assertEquals(a.score, b.score);
      assertEquals(a.doc, b.doc);
    }
  }

  @Test
  void explainsAndComparesItself() throws IOException {
    fill(new Random(3), 50, new int[] {500, 500}, 9);
    Map<BytesRef, Integer> weights = Map.of(new BytesRef("t0"), 2);
    ImpactQuery query = new ImpactQuery(FIELD, weights);
    assertEquals(query, new ImpactQuery(FIELD, weights));
    assertEquals(query.hashCode(), new ImpactQuery(FIELD, weights).hashCode());
    assertNotEquals(query, new ImpactQuery(FIELD, Map.of(new BytesRef("t0"), 3)));
    assertEquals("impacts(contents:t0^2)", query.toString());
    try (Directory directory = new ByteBuffersDirectory()) {
      write(directory, new Random(4), 1, "plain", new BitSet());
      try (DirectoryReader reader = DirectoryReader.open(directory)) {
        IndexSearcher searcher = new IndexSearcher(reader);
        for (ScoreDoc hit : searcher.search(query, 50).scoreDocs) {
          assertEquals(hit.score, searcher.explain(query, hit.doc).getValue().floatValue());
          assertEquals(2 * matrix[0][hit.doc], hit.score);
        }
      }
    }
    for (int weight : new int[] {0, -1}) {
      assertThrows(IllegalArgumentException.class, () -> new ImpactQuery(FIELD, Map.of(new BytesRef("t0"), weight)));
    }
  }
}
