package sparta.lucene.codec;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.codecs.BlockTermState;
import org.apache.lucene.codecs.CodecUtil;
import org.apache.lucene.codecs.PushPostingsWriterBase;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.IndexFileNames;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.index.SegmentWriteState;
import org.apache.lucene.store.DataOutput;
import org.apache.lucene.store.IndexOutput;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.IOUtils;

/** Writes the postings of the terms that the term dictionary hands over, laid out as {@link RangeLayout} says. */
final class ImpactPostingsWriter extends PushPostingsWriterBase {
  private static final ImpactTermState START = new ImpactTermState();

  private final IndexOutput out;
  private final int maxDoc;
  private final int[] directory;
  private final RangeWriter ranges;
  private final int[] shortDocs;
  private final int[] shortImpacts;
  private int docFreq;
  private int current;
  private ImpactTermState last = START;
  private boolean complete;

  ImpactPostingsWriter(SegmentWriteState state) throws IOException {
    maxDoc = state.segmentInfo.maxDoc();
    directory = new int[RangeLayout.count(maxDoc)];
    int shortest = Math.max(RangeLayout.SHORT_TERM, directory.length);
    shortDocs = new int[shortest];
    shortImpacts = new int[shortest];
    ranges = new RangeWriter();
    String name =
        IndexFileNames.segmentFileName(
            state.segmentInfo.name, state.segmentSuffix, ImpactPostingsFormat.EXTENSION);
    out = state.directory.createOutput(name, state.context);
    try {
      CodecUtil.writeIndexHeader(
          out,
          ImpactPostingsFormat.NAME,
          ImpactPostingsFormat.VERSION,
          state.segmentInfo.getId(),
          state.segmentSuffix);
    } catch (Throwable e) {
      IOUtils.closeWhileHandlingException(out);
      throw e;
    }
  }

  @Override
  public void init(IndexOutput terms, SegmentWriteState state) throws IOException {
    CodecUtil.writeIndexHeader(
        terms,
        ImpactPostingsFormat.NAME,
        ImpactPostingsFormat.VERSION,
        state.segmentInfo.getId(),
        state.segmentSuffix);
    terms.writeVInt(RangeLayout.BITS);
  }

  @Override
  public void setField(FieldInfo field) {
    super.setField(field);
    last = START;
  }

  @Override
  public BlockTermState newTermState() {
    return new ImpactTermState();
  }

  @Override
  public void startTerm(NumericDocValues norms) {
    docFreq = 0;
    current = -1;
  }

  @Override
  public void startDoc(int doc, int impact) throws IOException {
    if (docFreq < shortDocs.length) {
      shortDocs[docFreq] = doc;
      shortImpacts[docFreq] = impact;
    } else {
      if (docFreq == shortDocs.length) {
        Arrays.fill(directory, 0);
        for (int i = 0; i < docFreq; i++) {
          add(shortDocs[i], shortImpacts[i]);
        }
      }
      add(doc, impact);
    }
    docFreq++;
  }

  @Override
  public void addPosition(int position, BytesRef payload, int startOffset, int endOffset) {
    throw new UnsupportedOperationException("fields with positions are not written here");
  }

  @Override
  public void finishDoc() {}

  @Override
  public void finishTerm(BlockTermState state) throws IOException {
    if (docFreq > shortDocs.length) {
      flushRange();
      ((ImpactTermState) state).pointer = out.getFilePointer();
      for (int word : directory) {
        out.writeInt(word);
      }
      return;
    }
    ((ImpactTermState) state).pointer = out.getFilePointer();
    int before = -1;
    for (int i = 0; i < docFreq; i++) {
      out.writeVInt(shortDocs[i] - before);
      out.writeVInt(shortImpacts[i]);
      before = shortDocs[i];
    }
  }

  @Override
  public void encodeTerm(DataOutput terms, FieldInfo field, BlockTermState state, boolean absolute)
      throws IOException {
    if (absolute) {
      last = START;
    }
    ImpactTermState term = (ImpactTermState) state;
    terms.writeVLong(term.pointer - last.pointer);
    last = term;
  }

  /** Ends the file, after the last term. */
  void finish(boolean others) throws IOException {
    out.writeByte((byte) (others ? 1 : 0));
    CodecUtil.writeFooter(out);
    complete = true;
  }

  @Override
  public void close() throws IOException {
    if (complete) {
      out.close();
    } else {
      IOUtils.closeWhileHandlingException(out);
    }
  }

  private void add(int doc, int impact) throws IOException {
    int range = doc >>> RangeLayout.BITS;
    if (range != current) {
      if (current >= 0) {
        flushRange();
      }
      current = range;
    }
    ranges.add(doc & RangeLayout.SIZE - 1, impact);
  }

  private void flushRange() throws IOException {
    directory[current] = ranges.flush(out, RangeLayout.length(current, maxDoc));
  }
}
