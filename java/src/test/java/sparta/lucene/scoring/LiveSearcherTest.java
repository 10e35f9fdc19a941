package sparta.lucene.scoring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.NoMergePolicy;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import sparta.lucene.util.IndexFields;

class LiveSearcherTest {
  /** Statistics of three live texts out of six, with and without stored lengths. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void countsLiveTexts(boolean isStored) throws Exception {
    IndexWriterConfig config = new IndexWriterConfig(new WhitespaceAnalyzer()).setMergePolicy(NoMergePolicy.INSTANCE);
    try (ByteBuffersDirectory directory = new ByteBuffersDirectory();
        IndexWriter writer = new IndexWriter(directory, config)) {
      add(writer, isStored, "a a b", "a c", "", "a b");
      writer.commit();
      add(writer, isStored, "a b", "c");
      writer.deleteDocuments(
          List.of("a a b", "", "c").stream().map(text -> new Term(IndexFields.ID, text)).toArray(Term[]::new));
      try (DirectoryReader reader = DirectoryReader.open(writer)) {
        IndexSearcher searcher = new LiveSearcher(reader);
        var texts = searcher.collectionStatistics(IndexFields.TEXT);
        assertEquals(3, texts.docCount());
        assertEquals(6, texts.sumTotalTermFreq());
        assertEquals(3, docFreq(searcher, "a"));
        assertEquals(2, docFreq(searcher, "b"));
        assertEquals(1, docFreq(searcher, "c"));
        assertEquals(6, searcher.collectionStatistics(IndexFields.ID).docCount());
      }
    }
  }

  private static long docFreq(IndexSearcher searcher, String word) throws Exception {
    Term term = new Term(IndexFields.TEXT, word);
    int docFreq = searcher.getIndexReader().docFreq(term);
    return searcher.termStatistics(term, docFreq, searcher.getIndexReader().totalTermFreq(term)).docFreq();
  }

  private static void add(IndexWriter writer, boolean isStored, String... texts) throws Exception {
    for (String text : texts) {
      Document document = new Document();
      document.add(new StringField(IndexFields.ID, text, Field.Store.NO));
      document.add(new Field(IndexFields.TEXT, text, IndexFields.TEXT_TYPE));
      if (isStored) {
        document.add(new NumericDocValuesField(IndexFields.TEXT_LENGTH, text.isEmpty() ? 0 : text.split(" ").length));
      }
      writer.addDocument(document);
    }
  }
}
