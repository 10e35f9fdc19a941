package sparta.lucene.codec;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.lucene.index.FilterLeafReader;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.store.IndexInput;
import org.apache.lucene.util.BytesRef;

/**
 * The terms of a field of impacts in one segment. It remembers where the postings of frequent terms lie, because Lucene's
 * dictionary takes longer to find a term than a search takes to add most of the postings.
 *
 * <p>Short terms are not remembered: they are many, and would displace the frequent ones.
 */
public final class ImpactTerms extends FilterLeafReader.FilterTerms {
  private static final int MOST_SLOTS = 1 << 13;

  private final IndexInput postings;
  private final int maxDoc;
  private final AtomicReferenceArray<Place> places;

  /** Where the postings of a term lie. */
  private record Place(BytesRef term, int docFreq, long pointer) {}

  ImpactTerms(Terms terms, IndexInput postings, int maxDoc) throws IOException {
    super(terms);
    this.postings = postings;
    this.maxDoc = maxDoc;
    int slots = Math.clamp(Long.highestOneBit(Math.max(1, terms.size())), 1, MOST_SLOTS);
    places = new AtomicReferenceArray<>(slots);
  }

  /** Begins to look up terms, in one thread. */
  public Lookup lookup() {
    return new Lookup();
  }

  /** Looks up terms for one query. */
  public final class Lookup {
    private final IndexInput file = postings.clone(); // each reading seeks, so the terms share it
    private TermsEnum cursor;

    private Lookup() {}

    /** The postings of a term; {@code null} if the segment lacks it. */
    public TermRanges find(BytesRef term) throws IOException {
      int slot = term.hashCode() & places.length() - 1;
      Place place = places.get(slot);
      if (place == null || !place.term.bytesEquals(term)) {
        if (cursor == null) {
          cursor = iterator();
        }
        if (!cursor.seekExact(term)) {
          return null;
        }
        ImpactTermState state = (ImpactTermState) cursor.termState();
        place = new Place(term, state.docFreq, state.pointer);
        if (!RangeLayout.isShort(state.docFreq, RangeLayout.count(maxDoc))) {
          places.set(slot, new Place(BytesRef.deepCopyOf(term), state.docFreq, state.pointer));
        }
      }
      TermRanges ranges = new TermRanges(file, maxDoc);
      ranges.reset(place.docFreq, place.pointer);
      return ranges;
    }
  }
}
