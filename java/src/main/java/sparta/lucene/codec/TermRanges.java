package sparta.lucene.codec;

import java.io.IOException;
import org.apache.lucene.index.CorruptIndexException;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.store.RandomAccessInput;

/**
 * One term's postings, range by range, as they lie in the file; see {@link RangeLayout}.
 *
 * <p>A short term has no ranges: its documents and impacts are here at once.
 */
public final class TermRanges {
  /** So many bytes of lists are read at once, unless the first list is longer. */
  private static final int AHEAD = 1 << 15;

  final IndexInput in;
  final int maxDoc;
  final int count;

  private int docFreq;
  private int highest;

  private int[] shortDocs = {};
  private int[] shortImpacts = {};

  private int[] directory = {};
  private long[] starts = {};

  /** Lists of several ranges, as they follow each other in the file, so that few reads wait for memory. */
  private byte[] ahead = {};

  /** Where in the file they begin. */
  private long aheadStart;

  private int aheadLength;

  /** Reads single bytes of columns; {@code null} before the first. */
  private RandomAccessInput single;

  TermRanges(IndexInput in, int maxDoc) {
    this.in = in;
    this.maxDoc = maxDoc;
    count = RangeLayout.count(maxDoc);
  }

  /** Turns to a term. */
  void reset(int docFreq, long pointer) throws IOException {
    this.docFreq = docFreq;
    highest = 0;
    aheadLength = 0;
    in.seek(pointer);
    if (isShort()) {
      readShort();
    } else {
      readDirectory(pointer);
    }
  }

  public int docFreq() {
    return docFreq;
  }

  public boolean isShort() {
    return RangeLayout.isShort(docFreq, count);
  }

  /** An upper bound of all impacts. */
  public int bound() {
    return highest;
  }

  /** The i-th document of a short term. */
  public int shortDoc(int i) {
    return shortDocs[i];
  }

  /** The i-th impact of a short term. */
  public int shortImpact(int i) {
    return shortImpacts[i];
  }

  /** What the directory says of a range; 0 when it is empty. */
  public int word(int range) {
    return directory[range];
  }

  /** Documents in a range. */
  public int length(int range) {
    return RangeLayout.length(range, maxDoc);
  }

  /** Reads a range into {@code data}, which has room for {@link RangeLayout#MOST_BYTES}. */
  public void read(int range, byte[] data) throws IOException {
    in.seek(starts[range]);
    in.readBytes(data, 0, RangeLayout.bytes(directory[range], length(range)));
  }

  /** Reads the list of a range, and often those of the next ranges; returns where it begins in {@link #lists}. */
  public int readList(int range) throws IOException {
    long start = starts[range];
    int bytes = RangeLayout.bytes(directory[range], length(range));
    if (start < aheadStart || start + bytes > aheadStart + aheadLength) {
      readAhead(range, start, bytes);
    }
    return (int) (start - aheadStart);
  }

  /** What {@link #readList} has read. */
  public byte[] lists() {
    return ahead;
  }

  private void readAhead(int range, long start, int first) throws IOException {
    int bytes = first;
    for (int next = range + 1; next < count; next++) {
      int word = directory[next];
      int more = RangeLayout.bytes(word, length(next));
      if (bytes + more > AHEAD || word != 0 && RangeLayout.form(word) == RangeLayout.COLUMN) {
        break;
      }
      bytes += more;
    }
    if (ahead.length < bytes) {
      ahead = new byte[bytes];
    }
    in.seek(start);
    in.readBytes(ahead, 0, bytes);
    aheadStart = start;
    aheadLength = bytes;
  }

  /** Reads the impact of one document from a column; the document counts from the start of the range. */
  public int columnImpact(int range, int doc) throws IOException {
    int at = length(range) == RangeLayout.SIZE ? RangeLayout.columnByte(doc) : doc;
    if (single == null) {
      single = in instanceof RandomAccessInput input ? input : in.randomAccessSlice(0, in.length());
    }
    return single.readByte(starts[range] + at) & 0xFF;
  }

  /** Reads a full column. */
  public void readColumn(int range, long[] words) throws IOException {
    in.seek(starts[range]);
    in.readLongs(words, 0, RangeLayout.STRIDE);
  }

  private void readShort() throws IOException {
    if (shortDocs.length < docFreq) {
      int size = Math.max(docFreq, RangeLayout.SHORT_TERM);
      shortDocs = new int[size];
      shortImpacts = new int[size];
    }
    int doc = -1;
    for (int i = 0; i < docFreq; i++) {
      doc += in.readVInt();
      shortDocs[i] = doc;
      shortImpacts[i] = in.readVInt();
      highest = Math.max(highest, shortImpacts[i]);
    }
  }

  private void readDirectory(long pointer) throws IOException {
    if (directory.length < count) {
      directory = new int[count];
      starts = new long[count];
    }
    in.readInts(directory, 0, count);
    long start = pointer;
    for (int range = count - 1; range >= 0; range--) {
      int word = directory[range];
      int bytes = RangeLayout.bytes(word, length(range));
      start -= bytes;
      if (bytes > RangeLayout.MOST_BYTES || start < 0) {
        throw new CorruptIndexException("range " + range + " of a term has an impossible length, " + bytes, in);
      }
      starts[range] = start;
      highest = Math.max(highest, RangeLayout.bound(word));
    }
  }
}
