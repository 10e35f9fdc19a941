package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/**
 * Does once, on a few passages, everything that writing and searching do: a runtime that records the classes it loads
 * meanwhile can keep them in an archive and start faster the next time.
 */
public final class WarmUp {
  private static final int PASSAGES = 300;

  private WarmUp() {}

  /** Writes into and reads from the folder that is the only argument. */
  public static void main(String[] arguments) throws IOException {
    write(arguments[0], "fast");
    write(arguments[0], "lucene");
    search(arguments[0]);
  }

  private static void write(String folder, String codec) throws IOException {
    try (ImpactWriter writer = new ImpactWriter(folder, "english", 2, 16, codec)) {
      writer.addTerms(StringTable.of("one", "two"));
      add(writer, false);
      writer.commit("first");
      add(writer, true);
      writer.delete(StringTable.of("passage 7"));
      writer.commit("second");
      writer.forceMerge(1);
      writer.commit("third");
      add(writer, false); // stays a segment of this codec when the next writes its own
      writer.commit("fourth");
    }
  }

  private static void search(String folder) throws IOException {
    try (ImpactSearcher searcher = new ImpactSearcher(folder, "english")) {
      ByteBuffer head = Packed.writer(5 * Integer.BYTES);
      head.putInt(1).putInt(0).putInt(2).putInt(1).putInt(1);
      byte[] query = StringTable.pack(head.array(), List.of(new BytesRef("one"), new BytesRef("two")));
      searcher.searchImpacts(query, new byte[0], 10, 2);
      searcher.searchImpacts(query, StringTable.of("in", "1", "lang\0en"), 10, 2);
      searcher.searchText(StringTable.of("some words", "of text"), new byte[0], 10, 2);
      byte[] docids = searcher.docids(StringTable.of("passage 1", "passage 2"));
      searcher.ids(docids);
      searcher.raws(docids);
      searcher.positions(docids);
      searcher.impacts(1, StringTable.of("one"));
      searcher.vector(1);
      searcher.rank(query, new byte[0], 1);
      searcher.keys(docids, "lang");
      searcher.postings(StringTable.of(), 100);
      searcher.live();
      searcher.userData();
    }
  }

  private static void add(ImpactWriter writer, boolean update) throws IOException {
    String[] ids = new String[PASSAGES];
    long[] positions = new long[PASSAGES];
    int[] indptr = new int[PASSAGES + 1];
    int[] terms = new int[2 * PASSAGES];
    int[] impacts = new int[2 * PASSAGES];
    for (int i = 0; i < PASSAGES; i++) {
      ids[i] = "passage " + i;
      positions[i] = i;
      indptr[i + 1] = 2 * (i + 1);
      terms[2 * i + 1] = 1;
      impacts[2 * i] = 1 + i % 255;
      impacts[2 * i + 1] = 1;
    }
    int[] values = new int[PASSAGES + 1];
    Arrays.fill(values, 1, PASSAGES + 1, 2);
    byte[] table = StringTable.of(ids);
    writer.add(
        table,
        table,
        table,
        Packed.bytes(positions),
        Packed.bytes(indptr),
        Packed.bytes(terms),
        Packed.bytes(impacts),
        StringTable.of(),
        StringTable.of("lang\0en", "year\0001990"),
        Packed.bytes(values),
        update);
  }
}
