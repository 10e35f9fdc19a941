package sparta.lucene;

import java.util.ArrayList;
import java.util.List;

/**
 * Whether there is memory for what is about to cross the border.
 *
 * <p>The bridge makes Java's arrays in native code, which ends the process when there is no memory for them. Asked
 * first, Java says so with an {@link OutOfMemoryError}, which can be caught.
 */
public final class MemoryCheck {
  private MemoryCheck() {}

  /** The longest array, so much below the limit that no runtime refuses it. */
  private static final int LONGEST = Integer.MAX_VALUE - 8;

  /** Allocates this many bytes, in as many arrays as they need, and lets them go; returns how many arrays. */
  public static int check(long bytes) {
    List<byte[]> arrays = new ArrayList<>();
    for (long left = bytes; left > 0; left -= LONGEST) {
      arrays.add(new byte[(int) Math.min(left, LONGEST)]);
    }
    return arrays.size();
  }
}
