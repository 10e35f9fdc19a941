package sparta.lucene.indexing;

import java.io.IOException;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.NumericDocValuesField;
import sparta.lucene.util.IndexFields;

/**
 * The analyzed text of a document, which counts its tokens while Lucene inverts it.
 *
 * <p>Lucene's norm holds a rounded length. BM25's mean length needs the exact length of every deleted document.
 */
final class CountedText extends Field {
  private int tokens;
  private TokenStream analyzed;
  private TokenStream counted;

  /** The number of tokens. Lucene reads fields in their order, so a document names it after the text. */
  final Field length =
      new NumericDocValuesField(IndexFields.TEXT_LENGTH, 0) {
        @Override
        public Number numericValue() {
          return (long) tokens;
        }
      };

  CountedText() {
    super(IndexFields.TEXT, "", IndexFields.TEXT_TYPE);
  }

  @Override
  public TokenStream tokenStream(Analyzer analyzer, TokenStream reuse) {
    tokens = 0;
    TokenStream stream = super.tokenStream(analyzer, reuse);
    if (stream != analyzed) { // an analyzer has one stream a thread
      analyzed = stream;
      counted = new Counter(stream);
    }
    return counted;
  }

  private final class Counter extends TokenFilter {
    Counter(TokenStream tokens) {
      super(tokens);
    }

    @Override
    public boolean incrementToken() throws IOException {
      boolean more = input.incrementToken();
      tokens += more ? 1 : 0;
      return more;
    }
  }
}
