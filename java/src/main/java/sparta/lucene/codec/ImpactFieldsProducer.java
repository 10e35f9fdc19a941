package sparta.lucene.codec;

import java.io.IOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.apache.lucene.codecs.FieldsProducer;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.Terms;
import org.apache.lucene.util.IOUtils;

/** Reads what {@link ImpactFieldsConsumer} wrote. */
final class ImpactFieldsProducer extends FieldsProducer {
  private final FieldsProducer impacts;
  private final FieldsProducer others;
  private final TreeMap<String, FieldsProducer> fields = new TreeMap<>();
  private final Map<String, ImpactTerms> terms = new HashMap<>();

  ImpactFieldsProducer(SegmentReadState state) throws IOException {
    ImpactPostingsReader postings = new ImpactPostingsReader(state);
    FieldsProducer first = null;
    try {
      first = TermDictionary.reader(state, postings);
      for (String field : first) {
        terms.put(field, postings.of(first.terms(field)));
      }
      others = postings.others() ? open(state) : null;
    } catch (Throwable e) {
      IOUtils.closeWhileHandlingException(postings, first);
      throw e;
    }
    impacts = first;
    impacts.forEach(field -> fields.put(field, impacts));
    if (others != null) {
      others.forEach(field -> fields.put(field, others));
    }
  }

  private static FieldsProducer open(SegmentReadState state) throws IOException {
    String suffix = ImpactPostingsFormat.othersSuffix(state.segmentSuffix);
    return ImpactPostingsFormat.others().fieldsProducer(new SegmentReadState(state, suffix));
  }

  @Override
  public Iterator<String> iterator() {
    return fields.keySet().iterator();
  }

  @Override
  public Terms terms(String field) throws IOException {
    FieldsProducer owner = fields.get(field);
    return owner == impacts ? terms.get(field) : owner == null ? null : owner.terms(field);
  }

  @Override
  public int size() {
    return fields.size();
  }

  @Override
  public void checkIntegrity() throws IOException {
    impacts.checkIntegrity();
    if (others != null) {
      others.checkIntegrity();
    }
  }

  @Override
  public void close() throws IOException {
    IOUtils.close(impacts, others);
  }
}
