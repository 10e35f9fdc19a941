package sparta.lucene.scoring;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.LeafReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.SegmentCommitInfo;
import org.apache.lucene.index.SegmentReader;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.StringHelper;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.IntSequence;

/** The share of a segment's deleted documents in Lucene's statistics of the field {@link IndexFields#TEXT}. */
final class DeletedTexts {
  /** More document frequencies than this would take too much memory. */
  private static final int MOST_TERMS = 1 << 16;

  private static final Map<String, WeakReference<Counts>> COUNTS = new HashMap<>();
  private static final Map<String, WeakReference<int[]>> LENGTHS = new HashMap<>();

  private final LeafReader reader;
  private final String segment;
  private final Counts counts;

  /** Readers of one segment share the counts, so a new reader counts only in segments with new deletions. */
  DeletedTexts(LeafReaderContext leaf) {
    reader = leaf.reader();
    SegmentCommitInfo info = ((SegmentReader) reader).getSegmentInfo();
    segment = StringHelper.idToString(info.info.getId());
    // The id of a generation: a copy of the index may delete other documents of the same segment.
    counts = shared(COUNTS, StringHelper.idToString(info.getId()), Counts::new);
  }

  /** Number of deleted documents whose text has a token. */
  int docs() throws IOException {
    return totals().docs;
  }

  /** Number of tokens of all deleted documents. */
  long tokens() throws IOException {
    return totals().tokens;
  }

  /** Number of deleted documents that hold the term. */
  int docFreq(BytesRef term) throws IOException {
    Integer known = counts.docFreqs.get(term);
    if (known != null) {
      return known;
    }
    int docFreq = count(term);
    if (counts.docFreqs.size() >= MOST_TERMS) {
      counts.docFreqs.clear();
    }
    counts.docFreqs.put(BytesRef.deepCopyOf(term), docFreq);
    return docFreq;
  }

  private int count(BytesRef term) throws IOException {
    Terms terms = reader.terms(IndexFields.TEXT);
    TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
    if (!cursor.seekExact(term)) {
      return 0;
    }
    int[] deleted = totals().docids;
    PostingsEnum postings = cursor.postings(null, PostingsEnum.NONE);
    return cursor.docFreq() > deleted.length ? countDeleted(postings, deleted) : countPostings(postings);
  }

  /** For a term in more documents than are deleted: looks up each deleted document. */
  private static int countDeleted(PostingsEnum postings, int[] deleted) throws IOException {
    int count = 0;
    for (int doc : deleted) {
      int reached = postings.docID() < doc ? postings.advance(doc) : postings.docID();
      if (reached == DocIdSetIterator.NO_MORE_DOCS) {
        break;
      }
      count += reached == doc ? 1 : 0;
    }
    return count;
  }

  private int countPostings(PostingsEnum postings) throws IOException {
    Bits live = reader.getLiveDocs();
    int count = 0;
    for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
      count += live.get(doc) ? 0 : 1;
    }
    return count;
  }

  private Counts totals() throws IOException {
    synchronized (counts) {
      if (counts.docids == null) {
        countTotals(deleted());
      }
      return counts;
    }
  }

  private int[] deleted() {
    Bits live = reader.getLiveDocs();
    IntSequence docids = new IntSequence();
    for (int doc = 0; doc < live.length(); doc++) {
      if (!live.get(doc)) {
        docids.add(doc);
      }
    }
    return docids.toArray();
  }

  private void countTotals(int[] deleted) throws IOException {
    NumericDocValues stored = DocValues.getNumeric(reader, IndexFields.TEXT_LENGTH);
    int[] counted = null;
    int docs = 0;
    long tokens = 0;
    for (int doc : deleted) {
      boolean isStored = stored.advanceExact(doc);
      if (!isStored && counted == null) {
        counted = lengths();
      }
      long length = isStored ? stored.longValue() : counted[doc];
      docs += length > 0 ? 1 : 0;
      tokens += length;
    }
    counts.docs = docs;
    counts.tokens = tokens;
    counts.lengths = counted;
    counts.docids = deleted;
  }

  /** Token counts of all documents, by a pass over all postings: older versions did not store them. */
  private int[] lengths() throws IOException {
    int[] lengths = shared(LENGTHS, segment, () -> new int[reader.maxDoc() + 1]);
    int last = reader.maxDoc(); // the entry after the last document says whether the pass is done
    synchronized (lengths) {
      if (lengths[last] == 0) {
        Arrays.fill(lengths, 0);
        addLengths(lengths);
        lengths[last] = 1;
      }
    }
    return lengths;
  }

  private void addLengths(int[] lengths) throws IOException {
    Terms terms = reader.terms(IndexFields.TEXT);
    TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
    PostingsEnum postings = null;
    while (cursor.next() != null) {
      postings = cursor.postings(postings, PostingsEnum.FREQS);
      for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
        lengths[doc] += postings.freq();
      }
    }
  }

  /** The value of a key as long as a reader holds it, else a new value. */
  private static <T> T shared(Map<String, WeakReference<T>> values, String key, Supplier<T> make) {
    synchronized (values) {
      values.values().removeIf(value -> value.refersTo(null));
      WeakReference<T> known = values.get(key);
      T value = known == null ? null : known.get();
      if (value == null) {
        value = make.get();
        values.put(key, new WeakReference<>(value));
      }
      return value;
    }
  }

  /** The counts of a segment with certain deletions, made when a search first needs them. */
  private static final class Counts {
    private final Map<BytesRef, Integer> docFreqs = new ConcurrentHashMap<>();
    private int[] docids;
    private int docs;
    private long tokens;

    /** Held for readers with further deletions; null where not needed. */
    private int[] lengths;
  }
}
