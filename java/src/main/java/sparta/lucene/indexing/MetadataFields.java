package sparta.lucene.indexing;

import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.KeywordField;
import org.apache.lucene.document.LongPoint;
import org.apache.lucene.index.IndexableField;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.NumericUtils;
import sparta.lucene.util.IndexFields;

/**
 * The metadata of a document as Lucene's fields: a term {@code name 0 value} for each value and, where the value is a
 * decimal number, a point (hash of the name, number). So a corpus may have any number of fields.
 */
public final class MetadataFields {
  private static final int LONGEST_NUMBER = 256;

  private final List<Field> terms = new ArrayList<>();
  private final List<Field> numbers = new ArrayList<>();

  /** Adds the fields of one document; they serve until the next. */
  void addTo(List<IndexableField> fields, DocumentBatch batch, int document) {
    int numbered = 0;
    for (int i = batch.firstValue(document); i < batch.firstValue(document + 1); i++) {
      int used = i - batch.firstValue(document);
      BytesRef term = batch.value(i);
      if (used == terms.size()) {
        terms.add(new KeywordField(IndexFields.METADATA, new BytesRef(), Field.Store.NO));
        numbers.add(new LongPoint(IndexFields.NUMBERS, 0, 0));
      }
      terms.get(used).setBytesValue(term);
      fields.add(terms.get(used));
      BytesRef name = name(term);
      double number = number(term, name.length + 1);
      if (Double.isFinite(number)) {
        LongPoint point = (LongPoint) numbers.get(numbered++);
        point.setLongValues(hash(name), sortable(number));
        fields.add(point);
      }
    }
  }

  /** The name of the field that a term is of. */
  public static BytesRef name(BytesRef term) {
    int length = 0;
    while (length < term.length && term.bytes[term.offset + length] != 0) {
      length++;
    }
    return new BytesRef(term.bytes, term.offset, length);
  }

  /** What stands for a name among the points (FNV-1a); the index holds it. */
  public static long hash(BytesRef name) {
    long hash = 0xCBF2_9CE4_8422_2325L;
    for (int i = name.offset; i < name.offset + name.length; i++) {
      hash = (hash ^ name.bytes[i] & 0xFF) * 0x100_0000_01B3L;
    }
    return hash;
  }

  /** A number as its place in the order of all numbers; the two zeros are one. */
  public static long sortable(double number) {
    return NumericUtils.doubleToSortableLong(number + 0.0);
  }

  /** The number that a value is, {@code -?digits[.digits][e[+-]digits]}; not a finite one for any other. */
  static double number(BytesRef term, int from) {
    int end = term.offset + term.length;
    int at = term.offset + from;
    if (end - at > LONGEST_NUMBER) {
      return Double.NaN;
    }
    at += at < end && term.bytes[at] == '-' ? 1 : 0;
    int after = digits(term.bytes, at, end);
    if (after == at) {
      return Double.NaN;
    }
    if (after < end && term.bytes[after] == '.') {
      at = after + 1;
      after = digits(term.bytes, at, end);
      if (after == at) {
        return Double.NaN;
      }
    }
    if (after < end && (term.bytes[after] | 0x20) == 'e') {
      at = after + 1;
      at += at < end && (term.bytes[at] == '-' || term.bytes[at] == '+') ? 1 : 0;
      after = digits(term.bytes, at, end);
      if (after == at) {
        return Double.NaN;
      }
    }
    return after < end
        ? Double.NaN
        : Double.parseDouble(new BytesRef(term.bytes, term.offset + from, term.length - from).utf8ToString());
  }

  /** Where the digits from {@code at} on end. */
  private static int digits(byte[] bytes, int at, int end) {
    while (at < end && '0' <= bytes[at] && bytes[at] <= '9') {
      at++;
    }
    return at;
  }
}
