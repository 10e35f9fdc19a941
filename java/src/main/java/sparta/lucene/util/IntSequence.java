package sparta.lucene.util;

import java.nio.ByteBuffer;
import org.apache.lucene.util.ArrayUtil;

/** A growing sequence of ints. */
public final class IntSequence {
  private int[] values = new int[16];
  private int size;

  public void add(int value) {
    values = ArrayUtil.grow(values, size + 1);
    values[size++] = value;
  }

  public int size() {
    return size;
  }

  public int get(int i) {
    return values[i];
  }

  public int[] toArray() {
    return ArrayUtil.copyOfSubArray(values, 0, size);
  }

  /** Appends all values to {@code out}. */
  public void writeTo(ByteBuffer out) {
    out.asIntBuffer().put(values, 0, size);
    out.position(out.position() + size * Integer.BYTES);
  }
}
