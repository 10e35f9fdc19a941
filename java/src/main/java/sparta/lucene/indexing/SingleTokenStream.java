package sparta.lucene.indexing;

import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.BytesTermAttribute;
import org.apache.lucene.util.BytesRef;

/** A stream of one token, or of none. One instance serves one thread and all its documents. */
final class SingleTokenStream extends TokenStream {
  private final BytesTermAttribute attribute = addAttribute(BytesTermAttribute.class);
  private BytesRef token;

  /** Chooses the token of the next document; {@code null} for none. */
  void set(BytesRef token) {
    this.token = token;
  }

  @Override
  public void reset() {
    clearAttributes(); // the end of the document before left a position increment of 0
  }

  @Override
  public boolean incrementToken() {
    if (token == null) {
      return false;
    }
    attribute.setBytesRef(token);
    token = null;
    return true;
  }
}
