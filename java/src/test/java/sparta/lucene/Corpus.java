package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.IntSequence;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/** Passages in plain Java, the brute-force answers about them, and their packed form. */
final class Corpus {
  record Passage(String id, long position, Map<Integer, Integer> impacts) {}

  record Hit(String id, float score, long position) {}

  /** The filter that keeps everything. */
  static final byte[] ALL = {};

  final int vocabulary;
  final List<Passage> passages = new ArrayList<>();

  Corpus(int vocabulary) {
    this.vocabulary = vocabulary;
  }

  /** Random passages whose corpus positions are a random permutation of their order of arrival. */
  static Corpus random(Random random, int passages, int vocabulary, int highestImpact) {
    Corpus corpus = new Corpus(vocabulary);
    List<Long> positions = new ArrayList<>();
    for (long i = 0; i < passages; i++) {
      positions.add(i);
    }
    java.util.Collections.shuffle(positions, random);
    double density = random.nextDouble();
    for (int i = 0; i < passages; i++) {
      Map<Integer, Integer> impacts = new TreeMap<>();
      for (int term = 0; term < vocabulary; term++) {
        // The first terms are in nearly every passage, the last in few.
        if (random.nextDouble() < Math.pow(density, 1 + 10.0 * term / vocabulary)) {
          impacts.put(term, 1 + random.nextInt(highestImpact));
        }
      }
      corpus.passages.add(new Passage("p" + i, positions.get(i), impacts));
    }
    return corpus;
  }

  static String term(int id) {
    return "term" + id;
  }

  byte[] terms() {
    return terms(0, vocabulary);
  }

  /** The terms for the writer's vocabulary; the others cross with each batch, as its own. */
  byte[] knownTerms() {
    return terms(0, known());
  }

  private int known() {
    return vocabulary - vocabulary / 3;
  }

  private static byte[] terms(int begin, int end) {
    return StringTable.of(IntStream.range(begin, end).mapToObj(Corpus::term).toArray(String[]::new));
  }

  void add(ImpactWriter writer, List<Passage> batch, boolean update) throws IOException {
    String[] ids = batch.stream().map(Passage::id).toArray(String[]::new);
    String[] raws = batch.stream().map(p -> "raw " + p.id + " at " + p.position).toArray(String[]::new);
    String[] texts = batch.stream().map(p -> "The passage " + p.id + " of words").toArray(String[]::new);
    IntSequence indptr = new IntSequence();
    IntSequence terms = new IntSequence();
    IntSequence impacts = new IntSequence();
    List<String> own = new ArrayList<>(); // in the order of arrival, each term once
    indptr.add(0);
    for (Passage passage : batch) {
      passage.impacts.forEach(
          (term, impact) -> {
            if (term >= known() && !own.contains(term(term))) {
              own.add(term(term));
            }
            terms.add(term < known() ? term : known() + own.indexOf(term(term)));
            impacts.add(impact);
          });
      indptr.add(terms.size());
    }
    writer.add(
        StringTable.of(ids),
        StringTable.of(raws),
        StringTable.of(texts),
        Packed.bytes(batch.stream().mapToLong(Passage::position).toArray()),
        Packed.bytes(indptr.toArray()),
        Packed.bytes(terms.toArray()),
        Packed.bytes(impacts.toArray()),
        StringTable.of(own.toArray(String[]::new)),
        StringTable.of(),
        Packed.bytes(new int[ids.length + 1]),
        update);
  }

  void remove(String id) {
    passages.removeIf(p -> p.id.equals(id));
  }

  /** All that match, in the promised order; sums beyond 2^24 are of float32 products. */
  List<Hit> search(Map<Integer, Integer> query) {
    List<Hit> hits = new ArrayList<>();
    for (Passage passage : passages) {
      double sum = 0;
      boolean found = false;
      for (Map.Entry<Integer, Integer> entry : query.entrySet()) {
        Integer impact = passage.impacts.get(entry.getKey());
        if (impact != null) {
          sum += (float) entry.getValue() * (float) impact;
          found = true;
        }
      }
      if (found) {
        hits.add(new Hit(passage.id, (float) sum, passage.position));
      }
    }
    hits.sort(Comparator.comparingDouble((Hit hit) -> -hit.score).thenComparingLong(Hit::position));
    return hits;
  }

  static Map<Integer, Integer> randomQuery(Random random, int vocabulary, boolean weighted) {
    Map<Integer, Integer> query = new LinkedHashMap<>();
    int terms = random.nextInt(14);
    for (int i = 0; i < terms; i++) {
      // Terms beyond the vocabulary are unknown to the index.
      int weight = 1 + random.nextInt(!weighted ? 2 : random.nextBoolean() ? 15 : 2000);
      query.put(random.nextInt(vocabulary + 3), weight);
    }
    return query;
  }

  static byte[] pack(List<Map<Integer, Integer>> queries) {
    int m = queries.stream().mapToInt(Map::size).sum();
    ByteBuffer head = Packed.writer((2L + queries.size() + m) * Integer.BYTES);
    List<BytesRef> terms = new ArrayList<>();
    head.putInt(queries.size()).putInt(0);
    int end = 0;
    for (Map<Integer, Integer> query : queries) {
      end += query.size();
      head.putInt(end);
    }
    for (Map<Integer, Integer> query : queries) {
      query.forEach(
          (term, weight) -> {
            head.putInt(weight);
            terms.add(new BytesRef(term(term)));
          });
    }
    return StringTable.pack(head.array(), terms);
  }

  static float[] floats(ByteBuffer in, int count) {
    float[] values = new float[count];
    in.asFloatBuffer().get(values);
    return values;
  }

  /** Unpacks hits and looks up their ids and positions. */
  static List<List<Hit>> unpack(ImpactSearcher searcher, byte[] packed) throws IOException {
    ByteBuffer in = Packed.reader(packed);
    int n = in.getInt();
    int[] indptr = Packed.ints(in, n + 1, "indptr");
    int[] docids = Packed.ints(in, indptr[n], "docids");
    float[] scores = floats(in, indptr[n]);
    StringTable ids = StringTable.unpack(searcher.ids(Packed.bytes(docids)), "ids");
    long[] positions = Packed.longs(searcher.positions(Packed.bytes(docids)), "positions");
    List<List<Hit>> result = new ArrayList<>();
    for (int q = 0; q < n; q++) {
      List<Hit> hits = new ArrayList<>();
      for (int i = indptr[q]; i < indptr[q + 1]; i++) {
        hits.add(new Hit(ids.string(i), scores[i], positions[i]));
      }
      result.add(hits);
    }
    return result;
  }
}
