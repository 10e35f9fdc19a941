package sparta.lucene.codec;

import java.io.IOException;
import org.apache.lucene.codecs.BlockTermState;
import org.apache.lucene.codecs.CodecUtil;
import org.apache.lucene.codecs.PostingsReaderBase;
import org.apache.lucene.index.CorruptIndexException;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.ImpactsEnum;
import org.apache.lucene.index.IndexFileNames;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.SegmentReadState;
import org.apache.lucene.index.Terms;
import org.apache.lucene.store.DataInput;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.util.IOUtils;

/** Opens the postings that {@link ImpactPostingsWriter} wrote. */
final class ImpactPostingsReader extends PostingsReaderBase {
  private final IndexInput in;
  private final int maxDoc;
  private final boolean others;

  ImpactPostingsReader(SegmentReadState state) throws IOException {
    maxDoc = state.segmentInfo.maxDoc();
    String name =
        IndexFileNames.segmentFileName(
            state.segmentInfo.name, state.segmentSuffix, ImpactPostingsFormat.EXTENSION);
    in = state.directory.openInput(name, state.context);
    try {
      checkHeader(in, state);
      CodecUtil.retrieveChecksum(in);
      in.seek(in.length() - CodecUtil.footerLength() - 1);
      others = in.readByte() == 1;
    } catch (Throwable e) {
      IOUtils.closeWhileHandlingException(in);
      throw e;
    }
  }

  @Override
  public void init(IndexInput terms, SegmentReadState state) throws IOException {
    checkHeader(terms, state);
    int bits = terms.readVInt();
    if (bits != RangeLayout.BITS) {
      throw new CorruptIndexException("expected ranges of 2^" + RangeLayout.BITS + ", found 2^" + bits, terms);
    }
  }

  private static void checkHeader(IndexInput in, SegmentReadState state) throws IOException {
    CodecUtil.checkIndexHeader(
        in,
        ImpactPostingsFormat.NAME,
        ImpactPostingsFormat.VERSION,
        ImpactPostingsFormat.VERSION,
        state.segmentInfo.getId(),
        state.segmentSuffix);
  }

  /** The terms of a field, whose postings are here. */
  ImpactTerms of(Terms terms) throws IOException {
    return new ImpactTerms(terms, in, maxDoc);
  }

  /** Whether there are files of fields that are not impacts. */
  boolean others() {
    return others;
  }

  @Override
  public BlockTermState newTermState() {
    return new ImpactTermState();
  }

  @Override
  public void decodeTerm(DataInput terms, FieldInfo field, BlockTermState state, boolean absolute)
      throws IOException {
    ImpactTermState term = (ImpactTermState) state;
    term.pointer = (absolute ? 0 : term.pointer) + terms.readVLong();
  }

  @Override
  public PostingsEnum postings(FieldInfo field, BlockTermState state, PostingsEnum reuse, int flags)
      throws IOException {
    ImpactPostings postings =
        reuse instanceof ImpactPostings own && own.belongsTo(in) ? own : new ImpactPostings(in, maxDoc);
    return postings.reset((ImpactTermState) state);
  }

  @Override
  public ImpactsEnum impacts(FieldInfo field, BlockTermState state, int flags) throws IOException {
    return new ImpactPostings(in, maxDoc).reset((ImpactTermState) state);
  }

  @Override
  public void checkIntegrity() throws IOException {
    CodecUtil.checksumEntireFile(in);
  }

  @Override
  public void close() throws IOException {
    in.close();
  }
}
