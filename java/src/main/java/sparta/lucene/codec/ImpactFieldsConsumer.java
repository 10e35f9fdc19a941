package sparta.lucene.codec;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.lucene.codecs.FieldsConsumer;
import org.apache.lucene.codecs.NormsProducer;
import org.apache.lucene.index.Fields;
import org.apache.lucene.index.FilterLeafReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.SegmentWriteState;
import org.apache.lucene.util.IOUtils;

/** Writes the fields of documents and frequencies as impacts, and hands the others on. */
final class ImpactFieldsConsumer extends FieldsConsumer {
  private final SegmentWriteState state;
  private final ImpactPostingsWriter postings;
  private final FieldsConsumer terms;
  private FieldsConsumer others;

  ImpactFieldsConsumer(SegmentWriteState state) throws IOException {
    this.state = state;
    postings = new ImpactPostingsWriter(state);
    try {
      terms = TermDictionary.writer(state, postings);
    } catch (Throwable e) {
      IOUtils.closeWhileHandlingException(postings);
      throw e;
    }
  }

  @Override
  public void write(Fields fields, NormsProducer norms) throws IOException {
    List<String> impacts = new ArrayList<>();
    List<String> rest = new ArrayList<>();
    for (String field : fields) {
      IndexOptions options = state.fieldInfos.fieldInfo(field).getIndexOptions();
      (options == IndexOptions.DOCS_AND_FREQS ? impacts : rest).add(field);
    }
    terms.write(new Some(fields, impacts), norms);
    if (!rest.isEmpty()) {
      SegmentWriteState other =
          new SegmentWriteState(state, ImpactPostingsFormat.othersSuffix(state.segmentSuffix));
      others = ImpactPostingsFormat.others().fieldsConsumer(other);
      others.write(new Some(fields, rest), norms);
    }
    postings.finish(!rest.isEmpty());
  }

  @Override
  public void close() throws IOException {
    IOUtils.close(terms, others); // the terms close the postings
  }

  /** Some of the fields. */
  private static final class Some extends FilterLeafReader.FilterFields {
    private final List<String> names;

    Some(Fields all, List<String> names) {
      super(all);
      this.names = names;
    }

    @Override
    public Iterator<String> iterator() {
      return names.iterator();
    }

    @Override
    public int size() {
      return names.size();
    }
  }
}
