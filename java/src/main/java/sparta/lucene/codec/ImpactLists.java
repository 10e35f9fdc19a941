package sparta.lucene.codec;

import org.apache.lucene.util.BitUtil;

/** Decodes the lists of {@link RangeLayout}. */
public final class ImpactLists {
  /** Takes a posting; documents count from the start of the range. */
  public interface Consumer {
    void accept(int doc, int impact);
  }

  private ImpactLists() {}

  /** Passes on the postings of a list, but not its bridges. */
  public static void each(byte[] data, int word, Consumer consumer) {
    int form = RangeLayout.form(word);
    int entries = RangeLayout.entries(word);
    int doc = -1;
    for (int i = 0; i < entries; i++) {
      doc += data[i] & 0xFF;
      int impact = impact(data, form, entries, i);
      if (impact > 0) {
        consumer.accept(doc, impact);
      }
    }
  }

  /** The i-th impact. */
  static int impact(byte[] data, int form, int entries, int i) {
    return switch (form) {
      case RangeLayout.LIST_1 -> data[entries + i] & 0xFF;
      case RangeLayout.LIST_2 -> (short) BitUtil.VH_LE_SHORT.get(data, entries + 2 * i) & 0xFFFF;
      default -> (int) BitUtil.VH_LE_INT.get(data, entries + 4 * i);
    };
  }
}
