package sparta.lucene;

import java.util.Arrays;

/**
 * The best k hits seen so far: higher scores first, among equal scores the earlier corpus position.
 *
 * <p>A heap in three parallel arrays with the worst hit on top; they grow as hits come, so a large k costs nothing
 * when there are few.
 */
final class TopHits {
  private final int k;
  private int size;
  private float[] scores;
  private long[] positions;
  private int[] docids;

  TopHits(int k) {
    this.k = k;
    int capacity = Math.min(k, 1024);
    scores = new float[capacity];
    positions = new long[capacity];
    docids = new int[capacity];
  }

  boolean full() {
    return size == k;
  }

  /** The score of the worst hit that is kept. */
  float worstScore() {
    return scores[0];
  }

  /** Whether a hit would displace the worst one; only to be asked when {@link #full}. */
  boolean beatsWorst(float score, long position) {
    return score > scores[0] || score == scores[0] && position < positions[0];
  }

  /** Adds a hit while there is room. */
  void add(float score, long position, int docid) {
    if (size == scores.length) {
      int capacity = (int) Math.min(k, size * 2L);
      scores = Arrays.copyOf(scores, capacity);
      positions = Arrays.copyOf(positions, capacity);
      docids = Arrays.copyOf(docids, capacity);
    }
    int slot = size++;
    while (slot > 0 && worse(score, position, (slot - 1) / 2)) {
      int parent = (slot - 1) / 2;
      copy(parent, slot);
      slot = parent;
    }
    set(slot, score, position, docid);
  }

  /** Puts a hit in the place of the worst one. */
  void replaceWorst(float score, long position, int docid) {
    sink(score, position, docid);
  }

  /** Empties the heap into the result, best first. */
  HitList drain() {
    int n = size;
    HitList hits = new HitList(new int[n], new float[n]);
    while (size > 0) {
      hits.docids()[size - 1] = docids[0];
      hits.scores()[size - 1] = scores[0];
      size--;
      sink(scores[size], positions[size], docids[size]);
    }
    return hits;
  }

  private void sink(float score, long position, int docid) {
    int slot = 0;
    while (true) {
      int child = 2 * slot + 1;
      if (child >= size) {
        break;
      }
      if (child + 1 < size && worse(scores[child + 1], positions[child + 1], child)) {
        child++;
      }
      if (worse(score, position, child)) {
        break;
      }
      copy(child, slot);
      slot = child;
    }
    set(slot, score, position, docid);
  }

  private boolean worse(float score, long position, int than) {
    return score < scores[than] || score == scores[than] && position > positions[than];
  }

  private void copy(int from, int to) {
    set(to, scores[from], positions[from], docids[from]);
  }

  private void set(int slot, float score, long position, int docid) {
    scores[slot] = score;
    positions[slot] = position;
    docids[slot] = docid;
  }
}
