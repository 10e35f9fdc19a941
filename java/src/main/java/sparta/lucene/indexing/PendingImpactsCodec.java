package sparta.lucene.indexing;

import java.io.IOException;
import org.apache.lucene.codecs.Codec;
import org.apache.lucene.codecs.FieldsConsumer;
import org.apache.lucene.codecs.FieldsProducer;
import org.apache.lucene.codecs.FilterCodec;
import org.apache.lucene.codecs.NormsProducer;
import org.apache.lucene.codecs.PostingsFormat;
import org.apache.lucene.index.Fields;
import org.apache.lucene.index.FilterLeafReader;
import org.apache.lucene.index.MergeState;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.SegmentWriteState;
import org.apache.lucene.index.Terms;
import sparta.lucene.util.IndexFields;

/**
 * A codec for writing: that of the segments, which are what it alone would have written, with {@link PendingImpacts} in
 * place of the tokens that name them. It has its name, so that readers find it and not this one.
 */
public final class PendingImpactsCodec extends FilterCodec {
  private final PostingsFormat postings;

  public PendingImpactsCodec(Codec codec, PendingImpacts pending) {
    super(codec.getName(), codec);
    postings = new Format(codec.postingsFormat(), pending);
  }

  @Override
  public PostingsFormat postingsFormat() {
    return postings;
  }

  private static final class Format extends PostingsFormat {
    private final PostingsFormat format;
    private final PendingImpacts pending;

    Format(PostingsFormat format, PendingImpacts pending) {
      super(format.getName());
      this.format = format;
      this.pending = pending;
    }

    @Override
    public FieldsConsumer fieldsConsumer(SegmentWriteState state) throws IOException {
      return new Consumer(format.fieldsConsumer(state), pending, state.segmentInfo.maxDoc());
    }

    @Override
    public FieldsProducer fieldsProducer(SegmentReadState state) throws IOException {
      return format.fieldsProducer(state);
    }
  }

  /** Lucene writes the fields of a flush and merges those of segments: only the first have tokens that name impacts. */
  private static final class Consumer extends FieldsConsumer {
    private final FieldsConsumer consumer;
    private final PendingImpacts pending;
    private final int maxDoc;

    Consumer(FieldsConsumer consumer, PendingImpacts pending, int maxDoc) {
      this.consumer = consumer;
      this.pending = pending;
      this.maxDoc = maxDoc;
    }

    @Override
    public void write(Fields fields, NormsProducer norms) throws IOException {
      Terms impacts = pending.take(fields.terms(IndexFields.CONTENTS), maxDoc);
      consumer.write(
          new FilterLeafReader.FilterFields(fields) {
            @Override
            public Terms terms(String field) throws IOException {
              return field.equals(IndexFields.CONTENTS) ? impacts : super.terms(field);
            }
          },
          norms);
    }

    @Override
    public void merge(MergeState state, NormsProducer norms) throws IOException {
      consumer.merge(state, norms);
    }

    @Override
    public void close() throws IOException {
      consumer.close();
    }
  }
}
