package sparta.lucene.codec;

import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.store.DataOutput;
import org.apache.lucene.util.BitUtil;

/** Collects one term's postings in one range, then writes them in the form that suits them. */
final class RangeWriter {
  private final int[] docs = new int[RangeLayout.SIZE];
  private final int[] impacts = new int[RangeLayout.SIZE];
  private final byte[] bytes = new byte[RangeLayout.MOST_BYTES];
  private int size;
  private int highest;

  /** Adds a posting; documents count from the start of the range, and come in order. */
  void add(int doc, int impact) {
    docs[size] = doc;
    impacts[size++] = impact;
    highest = Math.max(highest, impact);
  }

  /** Writes what was added and forgets it; the word for the directory. */
  int flush(DataOutput out, int rangeLength) throws IOException {
    int word;
    if (highest <= RangeLayout.HIGHEST_BYTE && size * RangeLayout.COLUMN_SHARE >= rangeLength) {
      word = RangeLayout.word(RangeLayout.COLUMN, size, highest);
      column(rangeLength);
    } else {
      word = list();
    }
    out.writeBytes(bytes, RangeLayout.bytes(word, rangeLength));
    size = 0;
    highest = 0;
    return word;
  }

  private void column(int rangeLength) {
    Arrays.fill(bytes, 0, rangeLength, (byte) 0);
    boolean full = rangeLength == RangeLayout.SIZE;
    for (int i = 0; i < size; i++) {
      bytes[full ? RangeLayout.columnByte(docs[i]) : docs[i]] = (byte) impacts[i];
    }
  }

  private int list() {
    int form = form();
    int entries = size;
    int before = -1;
    for (int i = 0; i < size; i++) {
      entries += (docs[i] - before - 1) / RangeLayout.LONGEST_GAP;
      before = docs[i];
    }
    int at = 0;
    before = -1;
    for (int i = 0; i < size; i++) {
      for (; docs[i] - before > RangeLayout.LONGEST_GAP; before += RangeLayout.LONGEST_GAP) {
        put(form, entries, at++, RangeLayout.LONGEST_GAP, 0);
      }
      put(form, entries, at++, docs[i] - before, impacts[i]);
      before = docs[i];
    }
    return RangeLayout.word(form, entries, highest);
  }

  private int form() {
    if (highest <= RangeLayout.HIGHEST_BYTE) {
      return RangeLayout.LIST_1;
    }
    return highest < RangeLayout.WIDE_UNIT ? RangeLayout.LIST_2 : RangeLayout.LIST_4;
  }

  private void put(int form, int entries, int at, int gap, int impact) {
    bytes[at] = (byte) gap;
    switch (form) {
      case RangeLayout.LIST_1 -> bytes[entries + at] = (byte) impact;
      case RangeLayout.LIST_2 -> BitUtil.VH_LE_SHORT.set(bytes, entries + 2 * at, (short) impact);
      default -> BitUtil.VH_LE_INT.set(bytes, entries + 4 * at, impact);
    }
  }
}
