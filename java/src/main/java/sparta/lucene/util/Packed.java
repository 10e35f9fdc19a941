package sparta.lucene.util;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Little-endian numbers in byte arrays. */
public final class Packed {
  private Packed() {}

  /** A view of all of {@code data}. */
  public static ByteBuffer reader(byte[] data) {
    return ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** A buffer of exactly {@code bytes} bytes to fill. */
  public static ByteBuffer writer(long bytes) {
    if (bytes > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException("a result of " + bytes + " bytes does not fit into one array: ask for less");
    }
    return ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** All of {@code data} as int32; {@code name} is what a message calls it. */
  public static int[] ints(byte[] data, String name) {
    checkWidth(data, Integer.BYTES, name);
    int[] values = new int[data.length / Integer.BYTES];
    reader(data).asIntBuffer().get(values);
    return values;
  }

  /** All of {@code data} as int64. */
  public static long[] longs(byte[] data, String name) {
    checkWidth(data, Long.BYTES, name);
    long[] values = new long[data.length / Long.BYTES];
    reader(data).asLongBuffer().get(values);
    return values;
  }

  /** The next {@code count} int32 of {@code in}. */
  public static int[] ints(ByteBuffer in, int count, String name) {
    checkRemaining(in, count, Integer.BYTES, name);
    int[] values = new int[count];
    in.asIntBuffer().get(values);
    in.position(in.position() + count * Integer.BYTES);
    return values;
  }

  /** {@code values} as packed int32. */
  public static byte[] bytes(int[] values) {
    ByteBuffer out = writer((long) values.length * Integer.BYTES);
    out.asIntBuffer().put(values);
    return out.array();
  }

  /** {@code values} as packed int64. */
  public static byte[] bytes(long[] values) {
    ByteBuffer out = writer((long) values.length * Long.BYTES);
    out.asLongBuffer().put(values);
    return out.array();
  }

  /** Checks that {@code offsets} starts at 0, never falls and ends at {@code end}. */
  public static void checkOffsets(int[] offsets, long end, String name) {
    if (offsets.length == 0 || offsets[0] != 0) {
      throw new IllegalArgumentException(name + " must start with 0");
    }
    for (int i = 1; i < offsets.length; i++) {
      if (offsets[i] < offsets[i - 1]) {
        throw new IllegalArgumentException(name + " falls from " + offsets[i - 1] + " to " + offsets[i] + " at " + i);
      }
    }
    if (offsets[offsets.length - 1] != end) {
      throw new IllegalArgumentException(name + " must end with " + end + ", found " + offsets[offsets.length - 1]);
    }
  }

  private static void checkWidth(byte[] data, int width, String name) {
    if (data.length % width != 0) {
      throw new IllegalArgumentException(name + ": " + data.length + " bytes is no multiple of " + width);
    }
  }

  private static void checkRemaining(ByteBuffer in, int count, int width, String name) {
    if (count < 0 || (long) count * width > in.remaining()) {
      throw new IllegalArgumentException(
          name + ": expected " + count + " numbers of " + width + " bytes, found " + in.remaining() + " bytes");
    }
  }
}
