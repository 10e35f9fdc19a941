package sparta.lucene;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexNotFoundException;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.search.BulkScorer;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.search.ScoreMode;
import org.apache.lucene.search.Weight;
import org.apache.lucene.store.AlreadyClosedException;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.collecting.HitList;
import sparta.lucene.collecting.RankCollector;
import sparta.lucene.collecting.TopHitsCollector;
import sparta.lucene.filtering.KeptDocs;
import sparta.lucene.scoring.ImpactSimilarity;
import sparta.lucene.scoring.LiveSearcher;
import sparta.lucene.util.Packed;
import sparta.lucene.util.Parallel;
import sparta.lucene.util.StringTable;

/**
 * Searches what the last commit of an index folder held when the searcher was opened.
 *
 * <p>Hits come by score, the highest first, and among equal scores by corpus position, the earliest first; this holds
 * for the k-th hit too. Scores of impacts are integers ({@link sparta.lucene.scoring.ImpactQuery}), the same from segments of
 * {@link sparta.lucene.codec.ImpactPostingsFormat}, which are searched faster, and from those of Lucene's own format.
 *
 * <p>All methods may be called by several threads at once.
 */
public final class ImpactSearcher implements Closeable {
  /** The key of the commit's string in Lucene's commit data. */
  static final String USER_DATA = "sparta";

  private final Directory directory;
  private final DirectoryReader reader;
  private final IndexSearcher searcher;
  private final Analyzer analyzer;
  private final Lookup lookup;
  private final ImpactReader postings;
  private final Metadata metadata;

  /**
   * Opens the last commit.
   *
   * @param analyzer names the analysis of text queries; the one the index was written with
   */
  public ImpactSearcher(String dir, String analyzer) throws IOException {
    this(dir, analyzer, ImpactSimilarity.K1, ImpactSimilarity.B);
  }

  /** Opens the last commit, with other parameters of BM25. */
  public ImpactSearcher(String dir, String analyzer, float k1, float b) throws IOException {
    this.analyzer = Analyzers.of(analyzer);
    Path folder = Path.of(dir);
    if (!Files.isDirectory(folder)) {
      throw new IndexNotFoundException("no folder " + dir); // Lucene would create it
    }
    directory = FSDirectory.open(folder);
    DirectoryReader opened = null;
    try {
      opened = DirectoryReader.open(directory);
      IndexCheck.checkIfSmall(opened, folder);
    } catch (Throwable e) {
      if (opened != null) {
        opened.close();
      }
      directory.close();
      throw e;
    }
    reader = opened;
    searcher = new LiveSearcher(reader);
    searcher.setSimilarity(ImpactSimilarity.perField(k1, b));
    searcher.setQueryCache(null);
    lookup = new Lookup(reader);
    postings = new ImpactReader(reader, lookup);
    metadata = new Metadata(searcher);
  }

  /** Number of live documents. */
  public int numDocs() throws IOException {
    return open(reader::numDocs);
  }

  /** The string given to the commit, {@code null} when somebody else made it. */
  public String userData() throws IOException {
    return open(() -> reader.getIndexCommit().getUserData().get(USER_DATA));
  }

  /** Live docids, ascending: {@code int32[numDocs]}. */
  public byte[] live() throws IOException {
    return open(
        () -> {
          int[] docids = new int[reader.numDocs()];
          int n = 0;
          for (LeafReaderContext leaf : reader.leaves()) {
            var live = leaf.reader().getLiveDocs();
            for (int doc = 0; doc < leaf.reader().maxDoc(); doc++) {
              if (live == null || live.get(doc)) {
                docids[n++] = leaf.docBase + doc;
              }
            }
          }
          return Packed.bytes(docids);
        });
  }

  /**
   * Searches the impacts.
   *
   * @param queries packed as {@link Queries#impacts} reads them
   * @param filter which documents may be found, as {@link Metadata#kept} reads it; empty for all
   * @param k hits a query, at least 1; may exceed the index
   * @param threads threads over queries, at least 1
   * @return the hits of all queries in their order, packed as {@link HitList#pack} does
   */
  public byte[] searchImpacts(byte[] queries, byte[] filter, int k, int threads) throws IOException {
    return open(() -> search(Queries.impacts(queries, metadata.kept(filter)), k, threads));
  }

  /** Searches the texts by BM25; {@code queries} is a string table. */
  public byte[] searchText(byte[] queries, byte[] filter, int k, int threads) throws IOException {
    return open(() -> search(parse(queries, metadata.kept(filter)), k, threads));
  }

  /**
   * Searches impacts and texts side by side: of one query each, the wait is that for the slower.
   *
   * @param queries packed as for {@link #searchImpacts}
   * @param texts a string table of texts
   * @param filter as for {@link #searchImpacts}
   * @param threads half as many as work at both together, at least 1
   * @return the hits of all queries by their impacts, then of all by their texts, packed as {@link HitList#pack} does
   */
  public byte[] searchBoth(byte[] queries, byte[] texts, byte[] filter, int k, int threads) throws IOException {
    if (threads < 1) {
      throw new IllegalArgumentException("threads must be 1 or more, found " + threads);
    }
    return open(
        () -> {
          KeptDocs kept = metadata.kept(filter);
          Query[] impacts = Queries.impacts(queries, kept);
          Query[] parsed = parse(texts, kept);
          Query[] all = Arrays.copyOf(impacts, impacts.length + parsed.length);
          System.arraycopy(parsed, 0, all, impacts.length, parsed.length);
          return search(all, k, 2 * Math.min(threads, Math.max(1, all.length)));
        });
  }

  /** Which documents are live and kept by a filter that is not empty: a bit for each docid, the lowest bits first. */
  public byte[] matching(byte[] filter) throws IOException {
    return open(() -> Packed.bytes(metadata.kept(filter).all(searcher).getBits()));
  }

  /** What documents have in a field of their metadata, see {@link Metadata#keys}; int32 docids, a string table. */
  public byte[] keys(byte[] docids, String field) throws IOException {
    return open(
        () -> StringTable.pack(Arrays.asList(metadata.keys(Packed.ints(docids, "docids"), field, lookup))));
  }

  /** The names of all fields of metadata in byte order, as a string table. */
  public byte[] fields() throws IOException {
    return open(() -> StringTable.pack(metadata.fields()));
  }

  /** Passage ids of int32 docids, as a string table. */
  public byte[] ids(byte[] docids) throws IOException {
    return open(() -> StringTable.pack(Arrays.asList(lookup.ids(Packed.ints(docids, "docids")))));
  }

  /** Stored records of int32 docids, as a string table. */
  public byte[] raws(byte[] docids) throws IOException {
    return open(() -> StringTable.pack(Arrays.asList(lookup.raws(Packed.ints(docids, "docids")))));
  }

  /** Corpus positions of int32 docids, as int64. */
  public byte[] positions(byte[] docids) throws IOException {
    return open(() -> Packed.bytes(lookup.positions(Packed.ints(docids, "docids"))));
  }

  /** Docids of a string table of passage ids, as int32, −1 where there is none. */
  public byte[] docids(byte[] ids) throws IOException {
    StringTable table = StringTable.unpack(ids, "ids");
    return open(
        () -> {
          int[] docids = new int[table.size()];
          for (int i = 0; i < docids.length; i++) {
            docids[i] = lookup.docid(table.bytes(i));
          }
          return Packed.bytes(docids);
        });
  }

  /**
   * The sentences that the index holds of a string table of passages, as a string table: of {@code p} those of
   * {@code p#0}, {@code p#1}, … that are there, in byte order.
   */
  public byte[] sentences(byte[] ids) throws IOException {
    return open(
        () -> {
          Set<BytesRef> found = new TreeSet<>();
          for (BytesRef id : StringTable.unpack(ids, "ids")) {
            lookup.sentences(id, found);
          }
          return StringTable.pack(found);
        });
  }

  /** Impacts of a string table of terms in one passage, as int32, 0 where the passage lacks the term. */
  public byte[] impacts(int docid, byte[] terms) throws IOException {
    StringTable table = StringTable.unpack(terms, "terms");
    return open(
        () -> {
          int[] impacts = new int[table.size()];
          for (int i = 0; i < impacts.length; i++) {
            impacts[i] = postings.impact(docid, table.bytes(i));
          }
          return Packed.bytes(impacts);
        });
  }

  /**
   * How many of int32 docids have each value of a field of their metadata: {@code int32 n, int32 counts[n]} and a
   * string table of n values in byte order.
   */
  public byte[] counts(byte[] docids, String field) throws IOException {
    List<BytesRef> values = new ArrayList<>();
    int[] counts = open(() -> metadata.counts(Packed.ints(docids, "docids"), field, lookup, values));
    return counted(counts, values);
  }

  /** The words of a text and how often each occurs: {@code int32 n, int32 counts[n]} and a string table of n words. */
  public byte[] words(String text) throws IOException {
    Map<BytesRef, Float> words = Queries.words(text, analyzer);
    return counted(words.values().stream().mapToInt(Float::intValue).toArray(), words.keySet());
  }

  /** What each word of a text adds to the BM25 scores of int32 docids, see {@link WordScores#of}. */
  public byte[] wordScores(String text, byte[] docids) throws IOException {
    return open(
        () -> new WordScores(searcher, lookup).of(Queries.words(text, analyzer), Packed.ints(docids, "docids")));
  }

  /** Where the words of a query stand in a text, a string table of the two, see {@link WordPlaces#of}. */
  public byte[] wordPlaces(byte[] texts) throws IOException {
    StringTable table = StringTable.unpack(texts, "texts");
    return WordPlaces.of(table.string(0), table.string(1), analyzer);
  }

  /** Every term of one passage in byte order: {@code int32 n, int32 impacts[n]} and a string table of n terms. */
  public byte[] vector(int docid) throws IOException {
    List<BytesRef> terms = new ArrayList<>();
    int[] impacts = open(() -> postings.vector(docid, terms));
    return counted(impacts, terms);
  }

  /**
   * The place of one passage among all hits of a query, counted from 1 in the order of search; 0 when the passage
   * scores nothing or is deleted.
   *
   * @param queries exactly one query, packed as for {@link #searchImpacts}
   * @param filter as for {@link #searchImpacts}; a passage that it does not keep scores nothing
   */
  public int rank(byte[] queries, byte[] filter, int docid) throws IOException {
    return open(() -> rank(Queries.impacts(queries, metadata.kept(filter)), docid));
  }

  /** The place of one passage among all hits of a text, as {@link #rank} has it for impacts; a table of one text. */
  public int rankText(byte[] queries, byte[] filter, int docid) throws IOException {
    return open(() -> rank(parse(queries, metadata.kept(filter)), docid));
  }

  /**
   * Postings term by term, in byte order, for whoever copies the index elsewhere.
   *
   * @param after a string table: empty to begin, else one term, the last one got
   * @param budget at least one term is returned, more as long as their postings stay within this number
   * @return {@code int32 t, int32 indptr[t+1], int32 docids[p], int32 impacts[p]} and a string table of t terms,
   *     live documents only, docids ascending; t is 0 at the end
   */
  public byte[] postings(byte[] after, int budget) throws IOException {
    StringTable table = StringTable.unpack(after, "after");
    return open(() -> postings.page(table.size() == 0 ? null : table.bytes(0), budget));
  }

  /** Closes the reader for further calls; those that are running come to their end. */
  @Override
  public void close() throws IOException {
    try (directory) {
      reader.close();
    }
  }

  private Query[] parse(byte[] queries, KeptDocs kept) throws IOException {
    StringTable texts = StringTable.unpack(queries, "queries");
    Query[] parsed = new Query[texts.size()];
    for (int i = 0; i < parsed.length; i++) {
      parsed[i] = Queries.text(texts.string(i), analyzer, kept);
    }
    return parsed;
  }

  private int rank(Query[] queries, int docid) throws IOException {
    if (queries.length != 1) {
      throw new IllegalArgumentException("expected one query, found " + queries.length);
    }
    float score = score(queries[0], docid);
    if (score <= 0) {
      return 0;
    }
    long position = lookup.positions(new int[] {docid})[0];
    return 1 + searcher.search(queries[0], RankCollector.manager(score, position));
  }

  /** Numbers and as many strings: {@code int32 n, int32 numbers[n]} and a string table. */
  private static byte[] counted(int[] numbers, Collection<BytesRef> strings) {
    int[] head = new int[numbers.length + 1];
    head[0] = numbers.length;
    System.arraycopy(numbers, 0, head, 1, numbers.length);
    return StringTable.pack(Packed.bytes(head), strings);
  }

  private byte[] search(Query[] queries, int k, int threads) throws IOException {
    if (k < 1) {
      throw new IllegalArgumentException("k must be 1 or more, found " + k);
    }
    HitList[] hits = new HitList[queries.length];
    Parallel.run(
        queries.length,
        threads,
        i -> hits[i] = searcher.search(queries[i], TopHitsCollector.manager(k, lookup::order)));
    return HitList.pack(hits);
  }

  /** What is done with the open reader. */
  private interface Reading<T> {
    T read() throws IOException;
  }

  /** Keeps the reader open while something is read. */
  private <T> T open(Reading<T> reading) throws IOException {
    if (!reader.tryIncRef()) {
      throw new AlreadyClosedException("this searcher is closed");
    }
    try {
      return reading.read();
    } finally {
      reader.decRef();
    }
  }

  /** The score that a search would give the document; 0 when it would not be found. */
  private float score(Query query, int docid) throws IOException {
    LeafReaderContext leaf = lookup.leaf(docid);
    Weight weight = searcher.createWeight(searcher.rewrite(query), ScoreMode.COMPLETE, 1);
    BulkScorer scorer = weight.bulkScorer(leaf);
    if (scorer == null) {
      return 0;
    }
    OneScore collector = new OneScore();
    int doc = docid - leaf.docBase;
    scorer.score(collector, leaf.reader().getLiveDocs(), doc, doc + 1);
    return collector.score;
  }

  private static final class OneScore implements LeafCollector {
    private Scorable scorer;
    private float score;

    @Override
    public void setScorer(Scorable scorer) {
      this.scorer = scorer;
    }

    @Override
    public void collect(int doc) throws IOException {
      score = scorer.score();
    }
  }
}
