package sparta.lucene.codec;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.index.FreqAndNormBuffer;
import org.apache.lucene.index.Impacts;
import org.apache.lucene.index.ImpactsEnum;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.util.BytesRef;

/** One term's postings for everybody who reads them document by document: a range is decoded when it is entered. */
public final class ImpactPostings extends ImpactsEnum {
  private final IndexInput shared;
  private final TermRanges ranges;
  private byte[] data;

  /** The documents and impacts of the range that is decoded; of a short term, all of them. */
  private int[] docs = {};

  private int[] impacts = {};
  private int size;
  private int at;
  private int range;
  private int doc;

  private final Bounds bounds = new Bounds();
  private int boundsFrom;

  ImpactPostings(IndexInput shared, int maxDoc) {
    this.shared = shared;
    ranges = new TermRanges(shared.clone(), maxDoc);
  }

  /** Whether this reads the given file, so that it can be used again for another of its terms. */
  boolean belongsTo(IndexInput in) {
    return shared == in;
  }

  /** Turns to a term. */
  ImpactPostings reset(ImpactTermState term) throws IOException {
    ranges.reset(term.docFreq, term.pointer);
    doc = -1;
    at = -1;
    size = 0;
    range = -1;
    boundsFrom = 0;
    return this;
  }

  @Override
  public int docID() {
    return doc;
  }

  @Override
  public int freq() {
    return impacts[at];
  }

  @Override
  public int nextDoc() throws IOException {
    if (++at >= size && !decodeFrom(range + 1)) {
      return doc = NO_MORE_DOCS;
    }
    return doc = docs[at];
  }

  @Override
  public int advance(int target) throws IOException {
    if (target >= ranges.maxDoc) {
      exhaust();
      return doc = NO_MORE_DOCS;
    }
    at++;
    boolean here = range >= 0 && at < size && docs[size - 1] >= target;
    if (!here && !decodeFrom(Math.max(range + 1, target >>> RangeLayout.BITS))) {
      return doc = NO_MORE_DOCS;
    }
    int found = Arrays.binarySearch(docs, at, size, target);
    at = found >= 0 ? found : -found - 1;
    if (at == size) {
      return nextDoc();
    }
    return doc = docs[at];
  }

  @Override
  public long cost() {
    return ranges.docFreq();
  }

  @Override
  public int nextPosition() {
    return -1;
  }

  @Override
  public int startOffset() {
    return -1;
  }

  @Override
  public int endOffset() {
    return -1;
  }

  @Override
  public BytesRef getPayload() {
    return null;
  }

  @Override
  public void advanceShallow(int target) {
    boundsFrom = target;
  }

  @Override
  public Impacts getImpacts() {
    return bounds;
  }

  private void exhaust() {
    range = ranges.count;
    size = 0;
    at = 0;
  }

  /** Decodes the first range from this one on that is not empty; whether there is one. */
  private boolean decodeFrom(int next) throws IOException {
    if (ranges.isShort()) {
      if (range < 0) {
        decodeShort();
        range = ranges.count;
        return true;
      }
    } else {
      for (range = next; range < ranges.count; range++) {
        if (ranges.word(range) != 0) {
          decode();
          return true;
        }
      }
    }
    exhaust();
    return false;
  }

  private void decodeShort() {
    size = ranges.docFreq();
    at = 0;
    makeRoom();
    for (int i = 0; i < size; i++) {
      docs[i] = ranges.shortDoc(i);
      impacts[i] = ranges.shortImpact(i);
    }
  }

  private void decode() throws IOException {
    int word = ranges.word(range);
    size = RangeLayout.entries(word);
    at = 0;
    makeRoom();
    if (data == null) {
      data = new byte[RangeLayout.MOST_BYTES];
    }
    ranges.read(range, data);
    if (RangeLayout.form(word) == RangeLayout.COLUMN) {
      decodeColumn(ranges.length(range));
    } else {
      decodeList(word);
    }
  }

  private void makeRoom() {
    if (docs.length < size) {
      int room = size <= RangeLayout.SHORT_TERM ? RangeLayout.SHORT_TERM : Math.max(size, 2 * docs.length);
      docs = new int[room];
      impacts = new int[room];
    }
  }

  private void decodeColumn(int length) {
    int base = range << RangeLayout.BITS;
    boolean full = length == RangeLayout.SIZE;
    int n = 0;
    for (int d = 0; d < length; d++) {
      int impact = data[full ? RangeLayout.columnByte(d) : d] & 0xFF;
      if (impact > 0) {
        docs[n] = base + d;
        impacts[n++] = impact;
      }
    }
  }

  private void decodeList(int word) {
    int base = range << RangeLayout.BITS;
    size = 0;
    ImpactLists.each(
        data,
        word,
        (d, impact) -> {
          docs[size] = base + d;
          impacts[size++] = impact;
        });
  }

  /** The bound of the range around the document last named, then that of the whole term. */
  private final class Bounds extends Impacts {
    private final FreqAndNormBuffer buffer = new FreqAndNormBuffer();

    @Override
    public int numLevels() {
      return ranges.isShort() ? 1 : 2;
    }

    @Override
    public int getDocIdUpTo(int level) {
      int next = level == 0 ? next() : ranges.count;
      return next == ranges.count ? NO_MORE_DOCS : (next << RangeLayout.BITS) + RangeLayout.SIZE - 1;
    }

    @Override
    public FreqAndNormBuffer getImpacts(int level) {
      int next = level == 0 ? next() : ranges.count;
      int bound = next == ranges.count ? ranges.bound() : RangeLayout.bound(ranges.word(next));
      buffer.size = 0;
      buffer.add(bound, 1);
      return buffer;
    }

    /** The first range that has postings from the document last named on. */
    private int next() {
      int next = ranges.isShort() ? ranges.count : Math.max(boundsFrom, Math.max(doc, 0)) >>> RangeLayout.BITS;
      while (next < ranges.count && ranges.word(next) == 0) {
        next++;
      }
      return Math.min(next, ranges.count);
    }
  }
}
