package sparta.lucene;

import java.io.IOException;
import java.util.Arrays;
import java.util.Set;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.IndexReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.ReaderUtil;
import org.apache.lucene.index.StoredFieldVisitor;
import org.apache.lucene.index.StoredFields;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefBuilder;
import sparta.lucene.util.IndexFields;

/** From docids to what is kept of the documents, and from passage ids to docids. */
final class Lookup {
  private final IndexReader reader;

  Lookup(IndexReader reader) {
    this.reader = reader;
  }

  /** Passage ids, in the order of the docids. */
  BytesRef[] ids(int[] docids) throws IOException {
    BytesRef[] ids = new BytesRef[docids.length];
    inDocOrder(
        docids,
        leaf -> {
          BinaryDocValues values = DocValues.getBinary(leaf.reader(), IndexFields.ID);
          return (slot, doc) -> ids[slot] = values.advanceExact(doc) ? BytesRef.deepCopyOf(values.binaryValue()) : null;
        });
    return ids;
  }

  /** Corpus positions, in the order of the docids; 0 where there is none. */
  long[] positions(int[] docids) throws IOException {
    return positions(docids, 0);
  }

  /** What decides ties: corpus positions, in the order of the docids, and the last where there is none. */
  long[] order(int[] docids) throws IOException {
    return positions(docids, Long.MAX_VALUE);
  }

  private long[] positions(int[] docids, long otherwise) throws IOException {
    long[] positions = new long[docids.length];
    inDocOrder(
        docids,
        leaf -> {
          NumericDocValues values = DocValues.getNumeric(leaf.reader(), IndexFields.POSITION);
          return (slot, doc) -> positions[slot] = values.advanceExact(doc) ? values.longValue() : otherwise;
        });
    return positions;
  }

  /** Stored records, in the order of the docids. */
  BytesRef[] raws(int[] docids) throws IOException {
    BytesRef[] raws = new BytesRef[docids.length];
    inDocOrder(
        docids,
        leaf -> {
          StoredFields fields = leaf.reader().storedFields();
          RawVisitor visitor = new RawVisitor();
          return (slot, doc) -> {
            visitor.value = null;
            fields.document(doc, visitor);
            raws[slot] = visitor.value;
          };
        });
    return raws;
  }

  /** The live document with this passage id, the first in the corpus if there are several; −1 if there is none. */
  int docid(BytesRef id) throws IOException {
    int[] found = {-1};
    long[] first = {Long.MAX_VALUE};
    eachLive(
        id,
        (leaf, doc) -> {
          NumericDocValues values = DocValues.getNumeric(leaf.reader(), IndexFields.POSITION);
          long position = values.advanceExact(doc) ? values.longValue() : Long.MAX_VALUE;
          if (found[0] < 0 || position < first[0]) {
            first[0] = position;
            found[0] = leaf.docBase + doc;
          }
        });
    return found[0];
  }

  /** Number of live documents with this passage id. */
  int count(BytesRef id) throws IOException {
    int[] count = {0};
    eachLive(id, (leaf, doc) -> count[0]++);
    return count[0];
  }

  /**
   * Adds the live sentences of a passage, {@code id#0}, {@code id#1} and so on, to a set, whichever of them are there.
   */
  void sentences(BytesRef id, Set<BytesRef> found) throws IOException {
    BytesRefBuilder first = new BytesRefBuilder();
    first.append(id);
    first.append((byte) '#');
    int prefix = first.length();
    first.append((byte) '0');
    for (LeafReaderContext leaf : reader.leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.ID);
      if (terms == null) {
        continue;
      }
      TermsEnum term = terms.iterator();
      Bits live = leaf.reader().getLiveDocs();
      boolean more = term.seekCeil(first.get()) != TermsEnum.SeekStatus.END;
      // Digits follow each other in byte order, so the names that begin with #0 to #9 stand in one stretch.
      while (more && isNumbered(term.term(), first.get(), prefix)) {
        if (digitsOnly(term.term(), prefix) && hasLive(term, live)) {
          found.add(BytesRef.deepCopyOf(term.term()));
        }
        more = term.next() != null;
      }
    }
  }

  /** Whether a term begins with the first {@code prefix} bytes of {@code first} and goes on with a digit. */
  private static boolean isNumbered(BytesRef term, BytesRef first, int prefix) {
    return term.length > prefix
        && Arrays.mismatch(
                term.bytes, term.offset, term.offset + prefix, first.bytes, first.offset, first.offset + prefix)
            < 0
        && isDigit(term.bytes[term.offset + prefix]);
  }

  private static boolean digitsOnly(BytesRef term, int prefix) {
    for (int i = prefix; i < term.length; i++) {
      if (!isDigit(term.bytes[term.offset + i])) {
        return false;
      }
    }
    return true;
  }

  private static boolean isDigit(byte character) {
    return '0' <= character && character <= '9';
  }

  private static boolean hasLive(TermsEnum term, Bits live) throws IOException {
    PostingsEnum postings = term.postings(null, PostingsEnum.NONE);
    for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
      if (live == null || live.get(doc)) {
        return true;
      }
    }
    return false;
  }

  /** The segment of a docid; an {@link IllegalArgumentException} for a docid that the index cannot have. */
  LeafReaderContext leaf(int docid) {
    if (docid < 0 || docid >= reader.maxDoc()) {
      throw new IllegalArgumentException("docid " + docid + " is outside [0, " + reader.maxDoc() + ")");
    }
    return reader.leaves().get(ReaderUtil.subIndex(docid, reader.leaves()));
  }

  private interface LeafDocument {
    void accept(LeafReaderContext leaf, int doc) throws IOException;
  }

  private void eachLive(BytesRef id, LeafDocument action) throws IOException {
    for (LeafReaderContext leaf : reader.leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.ID);
      if (terms == null) {
        continue;
      }
      TermsEnum term = terms.iterator();
      if (!term.seekExact(id)) {
        continue;
      }
      Bits live = leaf.reader().getLiveDocs();
      PostingsEnum postings = term.postings(null, PostingsEnum.NONE);
      for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
        if (live == null || live.get(doc)) {
          action.accept(leaf, doc);
        }
      }
    }
  }

  interface SlotReader {
    void read(int slot, int doc) throws IOException;
  }

  interface LeafOpener {
    SlotReader open(LeafReaderContext leaf) throws IOException;
  }

  /** Visits the docids in ascending order, since doc values only go forward, opening each segment once. */
  void inDocOrder(int[] docids, LeafOpener opener) throws IOException {
    long[] order = new long[docids.length];
    for (int slot = 0; slot < docids.length; slot++) {
      order[slot] = (long) docids[slot] << 32 | slot;
    }
    if (!ascends(docids)) {
      Arrays.sort(order);
    }
    LeafReaderContext leaf = null;
    SlotReader values = null;
    for (long entry : order) {
      int docid = (int) (entry >> 32);
      if (leaf == null || docid >= leaf.docBase + leaf.reader().maxDoc()) {
        leaf = leaf(docid);
        values = opener.open(leaf);
      }
      values.read((int) entry, docid - leaf.docBase);
    }
  }

  private static boolean ascends(int[] docids) {
    for (int i = 1; i < docids.length; i++) {
      if (docids[i] < docids[i - 1]) {
        return false;
      }
    }
    return true;
  }

  private static final class RawVisitor extends StoredFieldVisitor {
    private BytesRef value;

    @Override
    public Status needsField(FieldInfo field) {
      return field.name.equals(IndexFields.RAW) ? Status.YES : value == null ? Status.NO : Status.STOP;
    }

    @Override
    public void stringField(FieldInfo field, String text) {
      value = new BytesRef(text);
    }
  }
}
