package sparta.lucene.indexing;

import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.StringTable;

/**
 * Term ids to bytes; ids count on from 0 in the order of arrival.
 *
 * <p>Only ever appended to, by one thread. A {@link View} taken before a batch is queued stays valid: what it shows
 * is never written again.
 */
public final class Vocabulary {
  private byte[] bytes = new byte[1 << 16];
  private int[] ends = new int[1 << 12];
  private int size;

  /** Appends all terms of the table, or none when one of them is too long for Lucene. */
  public void append(StringTable terms) {
    long end = end();
    for (int i = 0; i < terms.size(); i++) {
      checkLength(terms, i, "term " + (size + i));
      end += terms.length(i);
    }
    if (end > ArrayUtil.MAX_ARRAY_LENGTH) {
      throw new IllegalArgumentException("the terms take " + end + " bytes together; at most 2 GB are possible");
    }
    bytes = ArrayUtil.grow(bytes, (int) end);
    ends = ArrayUtil.grow(ends, size + terms.size());
    for (int i = 0; i < terms.size(); i++) {
      BytesRef term = terms.bytes(i);
      int start = end();
      System.arraycopy(term.bytes, term.offset, bytes, start, term.length);
      ends[size++] = start + term.length;
    }
  }

  /** Throws when a term is too long for Lucene; {@code name} is what the message calls it. */
  static void checkLength(StringTable terms, int i, String name) {
    if (terms.length(i) > IndexWriter.MAX_TERM_LENGTH) {
      throw new IllegalArgumentException(
          name + " has " + terms.length(i) + " bytes; the longest that Lucene takes has "
              + IndexWriter.MAX_TERM_LENGTH + ". It begins with: " + terms.string(i).substring(0, 60));
    }
  }

  /** What has been appended up to now. */
  public View view() {
    return new View(bytes, ends, size);
  }

  private int end() {
    return size == 0 ? 0 : ends[size - 1];
  }

  /** An unchanging prefix of the vocabulary. */
  record View(byte[] bytes, int[] ends, int size) {
    /** Where the bytes of {@code id} begin; they end at {@code ends[id]}. */
    int start(int id) {
      return id == 0 ? 0 : ends[id - 1];
    }

    /** Points {@code term} at the bytes of {@code id}, copying nothing. */
    void point(BytesRef term, int id) {
      term.bytes = bytes;
      term.offset = start(id);
      term.length = ends[id] - term.offset;
    }
  }
}
