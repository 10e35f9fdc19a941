package sparta.lucene.codec;

/**
 * How a term's postings lie in the file.
 *
 * <p>A term of few documents is <em>short</em>: {@code (vInt gap to the document before, vInt impact)} a document.
 * Any other has the data of its ranges one after the other, then the <em>directory</em>: a little-endian int32 for
 * every range of the segment, 0 where the term has nothing, else
 *
 * <pre>
 *   bits 0–13   entries
 *   bits 14–15  form: {@link #COLUMN}, or the impact width of a list, {@link #LIST_1}, {@link #LIST_2}, {@link #LIST_4}
 *   bits 16–31  an upper bound of the impacts; in units of {@link #WIDE_UNIT}, rounded up, for {@link #LIST_4}
 * </pre>
 *
 * <p>A list of n entries is n gap bytes followed by n impacts of 1, 2 or 4 bytes. The first gap counts from the
 * document before the range. A gap above 255 is bridged by entries of gap 255 and impact 0, which add nothing to any
 * sum.
 *
 * <p>A column has one byte a document, 0 where the term is absent. In the segment's last range, if it is not full,
 * the bytes are in the documents' order. In a full range, document d of the range is byte {@code d / STRIDE} of the
 * little-endian 64-bit word {@code d % STRIDE}: so words can be added as they are, eight documents at a time, and
 * neighbors in a list never meet in one word.
 */
public final class RangeLayout {
  public static final int BITS = 13;

  /** Documents in a range: one accumulator of 16 bits for each takes 16 kB. */
  public static final int SIZE = 1 << BITS;

  /** Words in a full column. */
  public static final int STRIDE = SIZE / Long.BYTES;

  /** A term with at most this many documents is short, if it does not have more than the segment has ranges. */
  static final int SHORT_TERM = 64;

  /**
   * A column is taken for a range when at least one in this many of its documents has the term. A list would be smaller
   * down to one in two, but a posting of it takes far more time than a byte of a column.
   */
  static final int COLUMN_SHARE = 8;

  public static final int COLUMN = 0;
  public static final int LIST_1 = 1;
  static final int LIST_2 = 2;
  static final int LIST_4 = 3;
  static final int WIDE_UNIT = 1 << 16;

  static final int LONGEST_GAP = 255;
  static final int HIGHEST_BYTE = 255;

  /** No range takes more: every document listed with the widest impact, and all the bridges there can be. */
  public static final int MOST_BYTES = 5 * (SIZE + SIZE / LONGEST_GAP + 1);

  private static final int ENTRY_BITS = 14;

  private RangeLayout() {}

  static int count(int documents) {
    return (int) (((long) documents + SIZE - 1) >>> BITS);
  }

  /** Whether a term is kept as a short one. */
  static boolean isShort(int docFreq, int ranges) {
    return docFreq <= Math.max(SHORT_TERM, ranges);
  }

  /** Documents in the given range of a segment. */
  static int length(int range, int maxDoc) {
    return Math.min(SIZE, maxDoc - (range << BITS));
  }

  /** One past the last document of a range. */
  public static int end(int range, int maxDoc) {
    return (range << BITS) + length(range, maxDoc);
  }

  static int word(int form, int entries, int highest) {
    int bound = form == LIST_4 ? (int) (((long) highest + WIDE_UNIT - 1) / WIDE_UNIT) : highest;
    return bound << (ENTRY_BITS + 2) | form << ENTRY_BITS | entries;
  }

  public static int entries(int word) {
    return word & (1 << ENTRY_BITS) - 1;
  }

  public static int form(int word) {
    return word >>> ENTRY_BITS & 3;
  }

  public static int bound(int word) {
    int bound = word >>> ENTRY_BITS + 2;
    return form(word) == LIST_4 ? (int) Math.min(Integer.MAX_VALUE, (long) bound * WIDE_UNIT) : bound;
  }

  /** Bytes of the impacts of a list; nothing for a column. */
  static int width(int form) {
    return 1 << form - 1;
  }

  /** Bytes of the range's data. */
  static int bytes(int word, int rangeLength) {
    int form = form(word);
    if (form == COLUMN) {
      return word == 0 ? 0 : rangeLength;
    }
    return entries(word) * (1 + width(form));
  }

  /** Where document d of a full range lies in its column. */
  static int columnByte(int d) {
    return (d & STRIDE - 1) << 3 | d / STRIDE;
  }
}
