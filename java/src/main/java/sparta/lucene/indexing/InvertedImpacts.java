package sparta.lucene.indexing;

import java.util.Arrays;
import org.apache.lucene.index.BaseTermsEnum;
import org.apache.lucene.index.ImpactsEnum;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.TermState;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.StringTable;

/**
 * The impacts of a segment's documents, term by term, as a postings format asks for them when it writes: once through
 * all terms, and through all postings of each.
 *
 * <p>A counting sort by term puts every posting in its place in one pass over the documents.
 */
final class InvertedImpacts extends Terms {
  /**
   * A document's postings: term ids and impacts in [begin, end) of arrays that it shares with others.
   *
   * @param ownTerms terms that the document shares with its batch only; id {@code firstOwn + i} names the i-th
   */
  record Document(int[] terms, int[] impacts, int begin, int end, StringTable ownTerms, int firstOwn) {
    /** About how many bytes the document's own terms take. */
    long ownBytes() {
      long bytes = 0;
      for (int i = begin; i < end; i++) {
        bytes += terms[i] < firstOwn ? 0 : ownTerms.length(terms[i] - firstOwn) + Integer.BYTES;
      }
      return bytes;
    }
  }

  private final SegmentTerms names;

  /** Ids of the terms that occur, in the order of their bytes. */
  private final int[] terms;

  /** The postings of term {@code terms[i]} are [starts[i], ends[i]), each a document above and an impact below. */
  private final int[] starts;

  private final int[] ends;
  private final long[] postings;
  private final int docCount;

  /**
   * Inverts.
   *
   * @param documents may be {@code null} where one has no postings. A term given twice in a
   *     document counts with the sum
   */
  InvertedImpacts(Document[] documents, Vocabulary.View vocabulary) {
    names = new SegmentTerms(vocabulary);
    int[] counts = new int[vocabulary.size()];
    long total = 0;
    int withPostings = 0;
    for (Document document : documents) {
      if (document != null) {
        int[] own = names.numbers(document);
        for (int i = document.begin; i < document.end; i++) {
          int term = id(document, own, i);
          counts = ArrayUtil.grow(counts, term + 1);
          counts[term]++;
        }
        total += document.end - document.begin;
        withPostings++;
      }
    }
    if (total > ArrayUtil.MAX_ARRAY_LENGTH) {
      throw new IllegalStateException(total + " postings in one segment; give the writer a smaller buffer");
    }
    docCount = withPostings;
    terms = names.inOrder(counts);
    postings = new long[(int) total];
    starts = new int[terms.length];
    int[] next = new int[counts.length];
    int start = 0;
    for (int i = 0; i < terms.length; i++) {
      starts[i] = start;
      next[terms[i]] = start;
      start += counts[terms[i]];
    }
    place(documents, next);
    ends = new int[terms.length];
    for (int i = 0; i < terms.length; i++) {
      ends[i] = next[terms[i]];
    }
  }

  /** Puts every posting at the next place of its term. */
  private void place(Document[] documents, int[] next) {
    int[] last = new int[next.length];
    Arrays.fill(last, -1);
    for (int doc = 0; doc < documents.length; doc++) {
      Document document = documents[doc];
      if (document == null) {
        continue;
      }
      int[] own = names.numbers(document);
      int[] impacts = document.impacts;
      for (int i = document.begin; i < document.end; i++) {
        int term = id(document, own, i);
        int impact = impacts[i];
        if (last[term] == doc) {
          postings[next[term] - 1] += impact;
        } else {
          last[term] = doc;
          postings[next[term]++] = (long) doc << Integer.SIZE | impact;
        }
      }
    }
  }

  /** The number of a posting's term in this segment. */
  private static int id(Document document, int[] own, int i) {
    int term = document.terms[i];
    return term < document.firstOwn ? term : own[term - document.firstOwn];
  }

  @Override
  public TermsEnum iterator() {
    return new Each();
  }

  @Override
  public long size() {
    return terms.length;
  }

  @Override
  public long getSumTotalTermFreq() {
    throw new UnsupportedOperationException("counted by the one who writes");
  }

  @Override
  public long getSumDocFreq() {
    throw new UnsupportedOperationException("counted by the one who writes");
  }

  @Override
  public int getDocCount() {
    return docCount;
  }

  @Override
  public boolean hasFreqs() {
    return true;
  }

  @Override
  public boolean hasOffsets() {
    return false;
  }

  @Override
  public boolean hasPositions() {
    return false;
  }

  @Override
  public boolean hasPayloads() {
    return false;
  }

  private final class Each extends BaseTermsEnum {
    private final BytesRef term = new BytesRef();
    private int at = -1;

    @Override
    public BytesRef next() {
      if (++at >= terms.length) {
        return null;
      }
      names.point(term, terms[at]);
      return term;
    }

    @Override
    public BytesRef term() {
      return term;
    }

    @Override
    public int docFreq() {
      return ends[at] - starts[at];
    }

    @Override
    public long totalTermFreq() {
      long sum = 0;
      for (int i = starts[at]; i < ends[at]; i++) {
        sum += (int) postings[i];
      }
      return sum;
    }

    @Override
    public PostingsEnum postings(PostingsEnum reuse, int flags) {
      Postings found = reuse instanceof Postings some ? some : new Postings();
      found.next = starts[at];
      found.end = ends[at];
      found.doc = -1;
      return found;
    }

    @Override
    public ImpactsEnum impacts(int flags) {
      throw new UnsupportedOperationException("only for writing");
    }

    @Override
    public long ord() {
      throw new UnsupportedOperationException("only for writing");
    }

    @Override
    public SeekStatus seekCeil(BytesRef text) {
      throw new UnsupportedOperationException("only for writing");
    }

    @Override
    public void seekExact(long ord) {
      throw new UnsupportedOperationException("only for writing");
    }

    @Override
    public TermState termState() {
      throw new UnsupportedOperationException("only for writing");
    }
  }

  private final class Postings extends PostingsEnum {
    private int next;
    private int end;
    private int doc;
    private int impact;

    @Override
    public int nextDoc() {
      if (next == end) {
        return doc = NO_MORE_DOCS;
      }
      long posting = postings[next++];
      impact = (int) posting;
      return doc = (int) (posting >>> Integer.SIZE);
    }

    @Override
    public int freq() {
      return impact;
    }

    @Override
    public int docID() {
      return doc;
    }

    @Override
    public int advance(int target) {
      throw new UnsupportedOperationException("only for writing");
    }

    @Override
    public long cost() {
      return end - next;
    }

    @Override
    public int nextPosition() {
      return -1;
    }

    @Override
    public int startOffset() {
      return -1;
    }

    @Override
    public int endOffset() {
      return -1;
    }

    @Override
    public BytesRef getPayload() {
      return null;
    }
  }
}
