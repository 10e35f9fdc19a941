package sparta.lucene.scoring;

import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.BytesTermAttribute;
import org.apache.lucene.analysis.tokenattributes.TermFrequencyAttribute;
import org.apache.lucene.util.BytesRef;

/** One document's impacts as tokens: each term once, its impact as the term frequency; as others write them. */
final class ImpactTokenStream extends TokenStream {
  private final BytesTermAttribute termAttribute = addAttribute(BytesTermAttribute.class);
  private final TermFrequencyAttribute frequencyAttribute = addAttribute(TermFrequencyAttribute.class);
  private final String[] terms;
  private final int[] impacts;
  private int next;

  ImpactTokenStream(String[] terms, int[] impacts) {
    this.terms = terms;
    this.impacts = impacts;
  }

  @Override
  public void reset() {
    next = 0;
  }

  @Override
  public boolean incrementToken() {
    if (next == terms.length) {
      return false;
    }
    clearAttributes();
    termAttribute.setBytesRef(new BytesRef(terms[next]));
    frequencyAttribute.setTermFrequency(impacts[next++]);
    return true;
  }
}
