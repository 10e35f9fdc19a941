package sparta.lucene.codec;

import java.io.IOException;
import org.apache.lucene.codecs.FieldsConsumer;
import org.apache.lucene.codecs.FieldsProducer;
import org.apache.lucene.codecs.lucene103.blocktree.Lucene103BlockTreeTermsReader;
import org.apache.lucene.codecs.lucene103.blocktree.Lucene103BlockTreeTermsWriter;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.SegmentWriteState;

/**
 * Lucene's term dictionary below {@link ImpactPostingsFormat}. Lucene has no name to find it by, so this is the one class
 * that links a versioned class of Lucene's (decision 0033).
 */
final class TermDictionary {
  private TermDictionary() {}

  static FieldsConsumer writer(SegmentWriteState state, ImpactPostingsWriter postings) throws IOException {
    return new Lucene103BlockTreeTermsWriter(
        state,
        postings,
        Lucene103BlockTreeTermsWriter.DEFAULT_MIN_BLOCK_SIZE,
        Lucene103BlockTreeTermsWriter.DEFAULT_MAX_BLOCK_SIZE);
  }

  static FieldsProducer reader(SegmentReadState state, ImpactPostingsReader postings) throws IOException {
    return new Lucene103BlockTreeTermsReader(postings, state);
  }
}
