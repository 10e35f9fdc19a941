package sparta.lucene.filtering;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Random;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.LongPoint;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.util.FixedBitSet;
import org.junit.jupiter.api.Test;

/** Ranges of numbers beside Lucene's, over segments, deletions, several numbers a document and unknown fields. */
class NumberRangeTest {
  private static final String FIELD = "numbers";
  private static final long[] NAMES = {-5, 0, 7};

  @Test
  void findsWhatLuceneFinds() throws IOException {
    Random random = new Random(3);
    try (ByteBuffersDirectory directory = new ByteBuffersDirectory();
        IndexWriter writer =
            new IndexWriter(directory, new IndexWriterConfig().setMergePolicy(NoMergePolicy.INSTANCE))) {
      for (int segment = 0; segment < 4; segment++) {
        for (int i = 0; i < 1500; i++) {
          writer.addDocument(document(random, segment));
        }
        writer.commit();
      }
      compare(directory, random);
      writer.deleteDocuments(new Term("part", "3"));
      writer.commit();
      compare(directory, random);
    }
  }

  private static Document document(Random random, int segment) {
    Document document = new Document();
    document.add(new StringField("part", Integer.toString(random.nextInt(5)), Field.Store.NO));
    for (int i = segment == 0 ? 0 : random.nextInt(4); i > 0; i--) {
      long number = random.nextInt(10) == 0 ? random.nextLong() : random.nextInt(400) - 200;
      document.add(new LongPoint(FIELD, NAMES[random.nextInt(NAMES.length)], number));
    }
    return document;
  }

  private static void compare(ByteBuffersDirectory directory, Random random) throws IOException {
    try (DirectoryReader reader = DirectoryReader.open(directory)) {
      IndexSearcher searcher = new IndexSearcher(reader);
      for (int again = 0; again < 300; again++) {
        long name = again % 10 == 0 ? 3 : NAMES[random.nextInt(NAMES.length)];
        long low = again % 7 == 0 ? Long.MIN_VALUE : random.nextInt(500) - 250;
        long high = again % 5 == 0 ? Long.MAX_VALUE : low + random.nextInt(100) - 5;
        FixedBitSet expected =
            KeptDocs.of(
                    LongPoint.newRangeQuery(FIELD, new long[] {name, low}, new long[] {name, high}), searcher)
                .all(searcher);
        FixedBitSet found = KeptDocs.of(new NumberRange(FIELD, name, low, high), searcher).all(searcher);
        assertEquals(expected, found);
        assertTrue(name != 3 || found.cardinality() == 0);
      }
    }
  }
}
