package sparta.lucene.filtering;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.lucene.document.LongPoint;
import org.apache.lucene.index.IndexReader;
import org.apache.lucene.index.LeafReader;
import org.apache.lucene.index.PointValues;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.FixedBitSet;
import org.apache.lucene.util.IntroSorter;

/**
 * The numbers of one metadata field in one segment, in ascending order, each with its document: 12 bytes per number.
 * They are read from Lucene's points at the first range over a field, and stay until the segment is closed.
 */
final class OrderedNumbers {
  private static final Map<IndexReader.CacheKey, Map<Long, OrderedNumbers>> KNOWN = new ConcurrentHashMap<>();

  private long[] numbers = {};
  private int[] docs = {};
  private int size;

  private OrderedNumbers(PointValues points, long name) throws IOException {
    points.intersect(new Collector(name));
    new Sorter().sort(0, size);
  }

  /** Those of the field whose hash is {@code name} among the points (hash, number); {@code null} when it has none. */
  static OrderedNumbers of(LeafReader reader, PointValues points, long name) throws IOException {
    IndexReader.CacheHelper core = reader.getCoreCacheHelper();
    if (core == null) {
      return read(points, name);
    }
    Map<Long, OrderedNumbers> known = KNOWN.get(core.getKey());
    if (known == null) {
      known = new ConcurrentHashMap<>();
      Map<Long, OrderedNumbers> earlier = KNOWN.putIfAbsent(core.getKey(), known);
      if (earlier == null) {
        core.addClosedListener(KNOWN::remove);
      } else {
        known = earlier;
      }
    }
    try {
      return known.computeIfAbsent(name, any -> read(points, name));
    } catch (UncheckedIOException e) {
      throw e.getCause();
    }
  }

  private static OrderedNumbers read(PointValues points, long name) {
    try {
      OrderedNumbers all = new OrderedNumbers(points, name);
      return all.size == 0 ? null : all;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The documents that have a number from {@code low} to {@code high}, both included. */
  FixedBitSet within(long low, long high, int maxDoc) {
    FixedBitSet found = new FixedBitSet(maxDoc);
    for (int i = first(low); i < size && numbers[i] <= high; i++) {
      found.set(docs[i]);
    }
    return found;
  }

  /** Where the first number stands that is not below one. */
  private int first(long low) {
    int from = 0;
    int to = size;
    while (from < to) {
      int middle = (from + to) >>> 1;
      if (numbers[middle] < low) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  private final class Collector implements PointValues.IntersectVisitor {
    private final long name;

    Collector(long name) {
      this.name = name;
    }

    @Override
    public void visit(int doc) {
      throw new IllegalStateException("a document without its point");
    }

    @Override
    public void visit(int doc, byte[] point) {
      if (LongPoint.decodeDimension(point, 0) == name) {
        if (size == docs.length) {
          docs = ArrayUtil.grow(docs, size + 1);
          numbers = Arrays.copyOf(numbers, docs.length);
        }
        docs[size] = doc;
        numbers[size++] = LongPoint.decodeDimension(point, Long.BYTES);
      }
    }

    @Override
    public PointValues.Relation compare(byte[] least, byte[] most) {
      boolean outside = name < LongPoint.decodeDimension(least, 0) || LongPoint.decodeDimension(most, 0) < name;
      return outside ? PointValues.Relation.CELL_OUTSIDE_QUERY : PointValues.Relation.CELL_CROSSES_QUERY;
    }
  }

  private final class Sorter extends IntroSorter {
    private long pivot;

    @Override
    protected void setPivot(int i) {
      pivot = numbers[i];
    }

    @Override
    protected int comparePivot(int j) {
      return Long.compare(pivot, numbers[j]);
    }

    @Override
    protected void swap(int i, int j) {
      long number = numbers[i];
      numbers[i] = numbers[j];
      numbers[j] = number;
      int doc = docs[i];
      docs[i] = docs[j];
      docs[j] = doc;
    }
  }
}
