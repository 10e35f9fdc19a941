package sparta.lucene.indexing;

import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefHash;
import sparta.lucene.util.StringTable;

/**
 * The terms of one segment: those of the vocabulary by their ids, then the own terms of its batches, numbered in the
 * order of their arrival.
 *
 * <p>Own terms are many and mostly rare. So no vocabulary of them outlives a segment.
 */
final class SegmentTerms {
  private static final int[] NONE = {};

  private final Vocabulary.View vocabulary;
  private final BytesRefHash own = new BytesRefHash();
  private final Map<StringTable, int[]> numbers = new IdentityHashMap<>();

  SegmentTerms(Vocabulary.View vocabulary) {
    this.vocabulary = vocabulary;
  }

  /** The numbers in this segment of the own terms of a document's batch, of those that the document has at least. */
  int[] numbers(InvertedImpacts.Document document) {
    StringTable terms = document.ownTerms();
    if (terms.size() == 0) {
      return NONE;
    }
    int[] known = numbers.computeIfAbsent(terms, table -> filled(table.size()));
    for (int i = document.begin(); i < document.end(); i++) {
      int term = document.terms()[i] - document.firstOwn();
      if (term >= 0 && known[term] < 0) {
        int number = own.add(terms.bytes(term));
        known[term] = vocabulary.size() + (number < 0 ? -number - 1 : number);
      }
    }
    return known;
  }

  /**
   * The numbers of the terms that occur, in the order of the terms' bytes; {@link #numbers} gives no new one afterwards.
   *
   * @param counts how often each number occurs
   */
  int[] inOrder(int[] counts) {
    int[] fixed =
        IntStream.range(0, Math.min(counts.length, vocabulary.size()))
            .filter(term -> counts[term] > 0)
            .boxed()
            .sorted((a, b) -> compare(a, b))
            .mapToInt(Integer::intValue)
            .toArray();
    int size = own.size();
    int[] sorted = own.sort();
    int[] ordered = new int[fixed.length + size];
    int f = 0;
    int o = 0;
    for (int i = 0; i < ordered.length; i++) {
      boolean takesFixed =
          o == size || f < fixed.length && compare(fixed[f], vocabulary.size() + sorted[o]) <= 0;
      ordered[i] = takesFixed ? fixed[f++] : vocabulary.size() + sorted[o++];
      if (i > 0 && compare(ordered[i - 1], ordered[i]) == 0) {
        throw new IllegalArgumentException(
            "term ids " + ordered[i - 1] + " and " + ordered[i] + " stand for the same term, "
                + bytes(ordered[i]).utf8ToString());
      }
    }
    return ordered;
  }

  /** Points {@code term} at the bytes of a term, copying nothing. */
  void point(BytesRef term, int number) {
    if (number < vocabulary.size()) {
      vocabulary.point(term, number);
    } else {
      own.get(number - vocabulary.size(), term);
    }
  }

  private int compare(int a, int b) {
    return bytes(a).compareTo(bytes(b));
  }

  private BytesRef bytes(int number) {
    BytesRef term = new BytesRef();
    point(term, number);
    return term;
  }

  private static int[] filled(int size) {
    int[] none = new int[size];
    Arrays.fill(none, -1);
    return none;
  }
}
