package sparta.lucene.util;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import org.apache.lucene.util.BytesRef;

/**
 * A sequence of UTF-8 strings in one array: {@code int32 n, int32 offsets[n+1], bytes}.
 *
 * <p>Reading checks the layout once; access afterwards copies nothing.
 */
public final class StringTable implements Iterable<BytesRef> {
  private final byte[] data;
  private final int base;
  private final int[] offsets;

  private StringTable(byte[] data, int base, int[] offsets) {
    this.data = data;
    this.base = base;
    this.offsets = offsets;
  }

  /** Reads a table that fills {@code data}; {@code name} is what a message calls it. */
  public static StringTable unpack(byte[] data, String name) {
    return unpack(Packed.reader(data), name);
  }

  /** Reads a table that fills the rest of {@code in}. */
  public static StringTable unpack(ByteBuffer in, String name) {
    int n = Packed.ints(in, 1, name)[0];
    if (n < 0 || n == Integer.MAX_VALUE) {
      throw new IllegalArgumentException(name + ": a table of " + n + " strings");
    }
    int[] offsets = Packed.ints(in, n + 1, name);
    Packed.checkOffsets(offsets, in.remaining(), name);
    return new StringTable(in.array(), in.arrayOffset() + in.position(), offsets);
  }

  /** Packs strings given as UTF-8 bytes, {@code null} as the empty string. */
  public static byte[] pack(Collection<BytesRef> strings) {
    return pack(new byte[0], strings);
  }

  /** Packs strings behind {@code head}. */
  public static byte[] pack(byte[] head, Collection<BytesRef> strings) {
    long bytes = 0;
    for (BytesRef string : strings) {
      bytes += string == null ? 0 : string.length;
    }
    ByteBuffer out = Packed.writer(head.length + (2L + strings.size()) * Integer.BYTES + bytes);
    out.put(head).putInt(strings.size()).putInt(0);
    int end = 0;
    for (BytesRef string : strings) {
      end += string == null ? 0 : string.length;
      out.putInt(end);
    }
    for (BytesRef string : strings) {
      if (string != null) {
        out.put(string.bytes, string.offset, string.length);
      }
    }
    return out.array();
  }

  /** Packs Java strings. */
  public static byte[] of(String... strings) {
    return pack(List.of(strings).stream().map(BytesRef::new).toList());
  }

  public int size() {
    return offsets.length - 1;
  }

  /** Length in bytes. */
  public int length(int i) {
    return offsets[i + 1] - offsets[i];
  }

  /** The string's bytes, shared with the table. */
  public BytesRef bytes(int i) {
    return new BytesRef(data, base + offsets[i], length(i));
  }

  public String string(int i) {
    return new String(data, base + offsets[i], length(i), StandardCharsets.UTF_8);
  }

  @Override
  public Iterator<BytesRef> iterator() {
    return new Iterator<>() {
      private int next;

      @Override
      public boolean hasNext() {
        return next < size();
      }

      @Override
      public BytesRef next() {
        return bytes(next++);
      }
    };
  }
}
