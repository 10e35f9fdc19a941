package sparta.lucene;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefHash;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/**
 * Reads the object {@code "vector"} of lines of JSON, {@code {"id": …, "contents": …, "vector": {term: impact}}}, and
 * leaves the rest of a line to the caller: that is where its postings are, and so nearly all of its bytes.
 *
 * <p>A line is <i>understood</i> when it has one vector at its top level, whose terms are distinct, 1 to 255 characters
 * long and valid UTF-8, and whose impacts are plain integers from 0 to 65,535. Then the line is valid JSON exactly if
 * it is with {@code {}} in the vector's place. Any other line is the caller's, who has the words to say what is wrong.
 *
 * <p>Terms are numbered from 0 as they come. Impacts of 0 are counted and left out.
 */
public final class VectorReader {
  private static final int LONGEST_TERM = 255;
  private static final int LARGEST_IMPACT = 0xFFFF;
  private static final byte[] KEY = "vector".getBytes(StandardCharsets.US_ASCII);

  private final BytesRefHash vocabulary = new BytesRefHash();
  private final BytesRef term = new BytesRef();
  private byte[] unescaped = new byte[1 << 10];

  /** For each term the line that had it last, from 1; lines count over the life of the reader. */
  private long[] lastLine = new long[1 << 10];

  private long lines;
  private int told;

  private int[] terms = new int[1 << 16];
  private int[] impacts = new int[1 << 16];
  private int postings;
  private int zeros;

  private byte[] data;
  private int at;
  private int limit;
  private int vectorBegin;
  private int vectorEnd;

  /**
   * Reads lines.
   *
   * @param table string table: lines without their ends
   * @return {@code int32 n, int32 begins[n], int32 ends[n], int32 indptr[n+1], int32 zeros, int32 terms[m], int32
   *     impacts[m]}, and the string table of the terms that no earlier answer has told of. The vector of line i are its
   *     bytes [begins[i], ends[i]); −1 when the line was not understood, and then it has no postings
   */
  public synchronized byte[] read(byte[] table) {
    StringTable strings = StringTable.unpack(table, "lines");
    int n = strings.size();
    int[] begins = new int[n];
    int[] ends = new int[n];
    int[] indptr = new int[n + 1];
    postings = 0;
    zeros = 0;
    for (int i = 0; i < n; i++) {
      BytesRef line = strings.bytes(i);
      int zerosBefore = zeros;
      if (readLine(line)) {
        begins[i] = vectorBegin - line.offset;
        ends[i] = vectorEnd - line.offset;
      } else {
        begins[i] = -1;
        ends[i] = -1;
        postings = indptr[i];
        zeros = zerosBefore;
      }
      indptr[i + 1] = postings;
    }
    return answer(begins, ends, indptr);
  }

  private byte[] answer(int[] begins, int[] ends, int[] indptr) {
    int n = begins.length;
    ByteBuffer head = Packed.writer((3L + 3L * n + 2L * postings) * Integer.BYTES);
    head.putInt(n);
    for (int[] part : new int[][] {begins, ends, indptr, {zeros}}) {
      put(head, part, part.length);
    }
    put(head, terms, postings);
    put(head, impacts, postings);
    List<BytesRef> fresh = new ArrayList<>();
    while (told < vocabulary.size()) {
      fresh.add(vocabulary.get(told++, new BytesRef()));
    }
    data = null;
    return StringTable.pack(head.array(), fresh);
  }

  private static void put(ByteBuffer out, int[] values, int length) {
    out.asIntBuffer().put(values, 0, length);
    out.position(out.position() + length * Integer.BYTES);
  }

  /** Whether the line is understood; then the place of its vector is known and its postings are appended. */
  private boolean readLine(BytesRef line) {
    data = line.bytes;
    at = line.offset;
    limit = line.offset + line.length;
    vectorBegin = -1;
    lines++;
    skipBlanks();
    if (!take('{')) {
      return false;
    }
    do {
      skipBlanks();
      int key = at + 1;
      if (!skipString()) {
        return false;
      }
      int length = at - 1 - key;
      for (int i = key; i < key + length; i++) {
        if (data[i] == '\\') { // it may spell "vector"
          return false;
        }
      }
      skipBlanks();
      if (!take(':')) {
        return false;
      }
      skipBlanks();
      if (!(Arrays.equals(data, key, key + length, KEY, 0, KEY.length) ? readVector() : skipValue())) {
        return false;
      }
      skipBlanks();
    } while (take(','));
    return take('}') && vectorBegin >= 0;
  }

  private boolean readVector() {
    if (vectorBegin >= 0) {
      return false;
    }
    vectorBegin = at;
    if (!take('{')) {
      return false;
    }
    skipBlanks();
    if (!take('}')) {
      do {
        skipBlanks();
        if (!readTerm()) {
          return false;
        }
        skipBlanks();
        if (!take(':')) {
          return false;
        }
        skipBlanks();
        if (!post(readImpact())) {
          return false;
        }
        skipBlanks();
      } while (take(','));
      if (!take('}')) {
        return false;
      }
    }
    vectorEnd = at;
    return true;
  }

  /** Reads a string into {@link #term}. */
  private boolean readTerm() {
    if (!take('"')) {
      return false;
    }
    term.bytes = data;
    term.offset = at;
    for (; at < limit; at++) {
      byte b = data[at];
      if (b == '"') {
        term.length = at++ - term.offset;
        return true;
      }
      if (b == '\\') {
        return readEscapedTerm();
      }
      if (b >= 0 && b < ' ') {
        return false;
      }
    }
    return false;
  }

  /** Goes on with a term from its first backslash. */
  private boolean readEscapedTerm() {
    int length = at - term.offset;
    unescaped = ArrayUtil.grow(unescaped, length);
    System.arraycopy(data, term.offset, unescaped, 0, length);
    while (at < limit) {
      byte b = data[at++];
      unescaped = ArrayUtil.grow(unescaped, length + 4);
      if (b == '"') {
        term.bytes = unescaped;
        term.offset = 0;
        term.length = length;
        return true;
      }
      if (b == '\\') {
        int character = readEscape();
        if (character < 0) {
          return false;
        }
        byte[] utf8 = Character.toString(character).getBytes(StandardCharsets.UTF_8);
        System.arraycopy(utf8, 0, unescaped, length, utf8.length);
        length += utf8.length;
      } else if (b >= 0 && b < ' ') {
        return false;
      } else {
        unescaped[length++] = b;
      }
    }
    return false;
  }

  /** The character that is escaped here, behind the backslash; −1 for none, or half of a pair. */
  private int readEscape() {
    if (at >= limit) {
      return -1;
    }
    byte b = data[at++];
    if (b != 'u') {
      int which = "\"\\/bfnrt".indexOf(b);
      return which < 0 ? -1 : "\"\\/\b\f\n\r\t".charAt(which);
    }
    int first = readHex();
    if (first < 0 || !Character.isSurrogate((char) first)) {
      return first;
    }
    int second = Character.isHighSurrogate((char) first) && take('\\') && take('u') ? readHex() : -1;
    boolean pair = second >= 0 && Character.isLowSurrogate((char) second);
    return pair ? Character.toCodePoint((char) first, (char) second) : -1;
  }

  private int readHex() {
    int value = 0;
    for (int i = 0; i < 4; i++) {
      int digit = at < limit && data[at] >= 0 ? Character.digit(data[at++], 16) : -1;
      if (digit < 0) {
        return -1;
      }
      value = value << 4 | digit;
    }
    return value;
  }

  /** A plain integer up to the largest impact; −1 for anything else. */
  private int readImpact() {
    int begin = at;
    int value = 0;
    while (at < limit && data[at] >= '0' && data[at] <= '9') {
      value = 10 * value + data[at++] - '0';
      if (value > LARGEST_IMPACT) {
        return -1;
      }
    }
    boolean leadingZero = at > begin + 1 && data[begin] == '0';
    return at == begin || leadingZero ? -1 : value;
  }

  private boolean post(int impact) {
    int id = impact < 0 ? -1 : termId();
    if (id < 0 || lastLine[id] == lines) {
      return false;
    }
    lastLine[id] = lines;
    if (impact == 0) {
      zeros++;
      return true;
    }
    if (postings == terms.length) {
      terms = ArrayUtil.grow(terms, postings + 1);
      impacts = ArrayUtil.growExact(impacts, terms.length);
    }
    terms[postings] = id;
    impacts[postings++] = impact;
    return true;
  }

  /** The number of {@link #term}, which is checked when it is new; −1 when it cannot be one. */
  private int termId() {
    int id = vocabulary.find(term);
    if (id >= 0 || !canBeTerm()) {
      return id;
    }
    id = vocabulary.add(term);
    lastLine = ArrayUtil.grow(lastLine, id + 1);
    return id;
  }

  private boolean canBeTerm() {
    if (term.length == 0 || term.length > 4 * LONGEST_TERM) {
      return false;
    }
    ByteBuffer bytes = ByteBuffer.wrap(term.bytes, term.offset, term.length);
    try {
      String characters = StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
      return characters.codePointCount(0, characters.length()) <= LONGEST_TERM;
    } catch (CharacterCodingException e) {
      return false;
    }
  }

  private boolean skipString() {
    if (!take('"')) {
      return false;
    }
    while (at < limit) {
      byte b = data[at++];
      if (b == '"') {
        return true;
      }
      if (b == '\\') {
        at++;
      }
    }
    return false;
  }

  /** Passes over any value; whether it is one is left to the reader of the rest of the line. */
  private boolean skipValue() {
    int depth = 0;
    while (at < limit) {
      switch (data[at]) {
        case '"' -> {
          if (!skipString()) {
            return false;
          }
          continue;
        }
        case '{', '[' -> depth++;
        case '}', ']' -> {
          if (--depth < 0) {
            return true; // the end of the line's own object
          }
        }
        case ',' -> {
          if (depth == 0) {
            return true;
          }
        }
        default -> {}
      }
      at++;
    }
    return false;
  }

  private void skipBlanks() {
    while (at < limit && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n')) {
      at++;
    }
  }

  private boolean take(char wanted) {
    if (at < limit && data[at] == wanted) {
      at++;
      return true;
    }
    return false;
  }
}
