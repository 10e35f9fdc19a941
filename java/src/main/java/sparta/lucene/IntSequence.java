package sparta.lucene;

import java.nio.ByteBuffer;
import org.apache.lucene.util.ArrayUtil;

/** A growing sequence of ints. */
final class IntSequence {
  private int[] values = new int[16];
  private int size;

  void add(int value) {
    values = ArrayUtil.grow(values, size + 1);
    values[size++] = value;
  }

  int size() {
    return size;
  }

  int get(int i) {
    return values[i];
  }

  int[] toArray() {
    return ArrayUtil.copyOfSubArray(values, 0, size);
  }

  /** Appends all values to {@code out}. */
  void writeTo(ByteBuffer out) {
    out.asIntBuffer().put(values, 0, size);
    out.position(out.position() + size * Integer.BYTES);
  }
}
