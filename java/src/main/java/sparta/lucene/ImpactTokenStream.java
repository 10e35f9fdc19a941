package sparta.lucene;

import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.BytesTermAttribute;
import org.apache.lucene.analysis.tokenattributes.TermFrequencyAttribute;
import org.apache.lucene.util.BytesRef;

/**
 * One document's impacts as tokens: each term once, its impact as the term frequency.
 *
 * <p>One instance serves one thread and all its documents; nothing is allocated per token.
 */
final class ImpactTokenStream extends TokenStream {
  private final BytesTermAttribute termAttribute = addAttribute(BytesTermAttribute.class);
  private final TermFrequencyAttribute frequencyAttribute = addAttribute(TermFrequencyAttribute.class);
  private final BytesRef term = new BytesRef();
  private DocumentBatch batch;
  private int next;
  private int end;

  /** Chooses the document whose impacts come next. */
  void set(DocumentBatch batch, int document) {
    this.batch = batch;
    next = batch.start(document);
    end = batch.end(document);
  }

  @Override
  public void reset() {
    clearAttributes(); // the end of the document before left a position increment of 0
  }

  @Override
  public boolean incrementToken() {
    if (next == end) {
      return false;
    }
    batch.point(term, next);
    termAttribute.setBytesRef(term);
    frequencyAttribute.setTermFrequency(batch.impact(next));
    next++;
    return true;
  }
}
