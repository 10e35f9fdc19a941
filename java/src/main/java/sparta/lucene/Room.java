package sparta.lucene;

/**
 * Whether there is memory for what is about to cross the border.
 *
 * <p>The bridge makes Java's arrays in native code, which ends the process when there is no memory for them. Asked
 * first, Java says so with an {@link OutOfMemoryError}, which can be caught.
 */
public final class Room {
  private Room() {}

  /** Allocates this many bytes and lets them go. */
  public static int check(int bytes) {
    return new byte[bytes].length;
  }
}
