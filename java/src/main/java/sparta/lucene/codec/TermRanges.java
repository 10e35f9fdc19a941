package sparta.lucene.codec;

import java.io.IOException;
import org.apache.lucene.index.CorruptIndexException;
import org.apache.lucene.store.IndexInput;

/**
 * One term's postings, range by range, as they lie in the file; see {@link RangeLayout}.
 *
 * <p>A short term has no ranges: its documents and impacts are here at once.
 */
public final class TermRanges {
  final IndexInput in;
  final int maxDoc;
  final int count;

  private int docFreq;
  private int highest;

  private int[] shortDocs = {};
  private int[] shortImpacts = {};

  private int[] directory = {};
  private long[] starts = {};

  TermRanges(IndexInput in, int maxDoc) {
    this.in = in;
    this.maxDoc = maxDoc;
    count = RangeLayout.count(maxDoc);
  }

  /** Turns to a term. */
  void reset(int docFreq, long pointer) throws IOException {
    this.docFreq = docFreq;
    highest = 0;
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
