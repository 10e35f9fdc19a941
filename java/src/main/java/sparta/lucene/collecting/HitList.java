package sparta.lucene.collecting;

import java.nio.ByteBuffer;
import sparta.lucene.util.Packed;

/** One query's hits, best first. */
public record HitList(int[] docids, float[] scores) {
  static final HitList EMPTY = new HitList(new int[0], new float[0]);

  public int size() {
    return docids.length;
  }

  /** Packs the hits of all queries: {@code int32 n, int32 indptr[n+1], int32 docids[h], float32 scores[h]}. */
  public static byte[] pack(HitList[] lists) {
    long total = 0;
    for (HitList list : lists) {
      total += list.size();
    }
    ByteBuffer out = Packed.writer((2L + lists.length + 2 * total) * Integer.BYTES);
    out.putInt(lists.length).putInt(0);
    int end = 0;
    for (HitList list : lists) {
      end += list.size();
      out.putInt(end);
    }
    for (HitList list : lists) {
      out.asIntBuffer().put(list.docids);
      out.position(out.position() + list.size() * Integer.BYTES);
    }
    for (HitList list : lists) {
      out.asFloatBuffer().put(list.scores);
      out.position(out.position() + list.size() * Float.BYTES);
    }
    return out.array();
  }
}
