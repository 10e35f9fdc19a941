package sparta.lucene.filtering;

import java.io.IOException;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PointValues;
import org.apache.lucene.util.BitSetIterator;
import org.apache.lucene.util.FixedBitSet;

/**
 * Documents with a point (hash of a field's name, number) of one field and of a number within bounds, both included.
 * It finds what Lucene's range query finds, sooner: a filter asks again and again for ranges of the same few fields.
 */
public final class NumberRange extends DocBits {
  private final String field;
  private final long name;
  private final long low;
  private final long high;

  public NumberRange(String field, long name, long low, long high) {
    this.field = field;
    this.name = name;
    this.low = low;
    this.high = high;
  }

  @Override
  BitSetIterator found(LeafReaderContext leaf) throws IOException {
    PointValues points = leaf.reader().getPointValues(field);
    OrderedNumbers numbers = points == null ? null : OrderedNumbers.of(leaf.reader(), points, name);
    if (numbers == null) {
      return null;
    }
    FixedBitSet found = numbers.within(low, high, leaf.reader().maxDoc());
    return new BitSetIterator(found, found.cardinality());
  }

  @Override
  public String toString(String field) {
    return "[%d TO %d] of %d".formatted(low, high, name);
  }
}
