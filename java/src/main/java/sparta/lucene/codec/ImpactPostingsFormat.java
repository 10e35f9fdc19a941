package sparta.lucene.codec;

import java.io.IOException;
import org.apache.lucene.codecs.FieldsConsumer;
import org.apache.lucene.codecs.FieldsProducer;
import org.apache.lucene.codecs.PostingsFormat;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.SegmentWriteState;

/**
 * Postings for learned impacts: many terms in a large share of the documents, and scores that are sums.
 *
 * <p>Documents are taken in ranges of {@link RangeLayout#SIZE}. In each range a term is either a <em>column</em>, one
 * byte per document, or a <em>list</em> of gaps and impacts, whichever its density asks for; a word a range says which, how
 * much there is, and the highest impact. So a query can be summed range by range into accumulators that stay in the
 * processor's nearest cache. See {@link RangeLayout} for the layout.
 *
 * <p>Terms go into Lucene's own term dictionary. Fields that keep more or less than documents and frequencies are
 * handed to Lucene's own format.
 */
public final class ImpactPostingsFormat extends PostingsFormat {
  /** By this name a field says what reads it. */
  static final String NAME = "SpartaImpacts";

  /** Lucene's format of the fields that are not impacts. */
  static final String LUCENE = "Lucene104";

  static final String EXTENSION = "imp";
  static final int VERSION = 0;

  /** For Lucene, which finds formats by name. */
  public ImpactPostingsFormat() {
    super(NAME);
  }

  @Override
  public FieldsConsumer fieldsConsumer(SegmentWriteState state) throws IOException {
    return new ImpactFieldsConsumer(state);
  }

  @Override
  public FieldsProducer fieldsProducer(SegmentReadState state) throws IOException {
    return new ImpactFieldsProducer(state);
  }

  /** The format of the fields that are not impacts. */
  static PostingsFormat others() {
    return PostingsFormat.forName(LUCENE);
  }

  /** What the files of those fields have in their names, so that they do not meet ours. */
  static String othersSuffix(String suffix) {
    return suffix.isEmpty() ? "others" : suffix + "_others";
  }
}
