package sparta.lucene;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.OffsetAttribute;
import org.apache.lucene.analysis.tokenattributes.TermToBytesRefAttribute;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.IntsRefBuilder;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.Packed;

/** Where the words of a query stand in a text, as BM25 reads both. */
final class WordPlaces {
  private WordPlaces() {}

  /**
   * Three int32 for each token of the text that is a word of the query, in the order of the text: the number of the
   * word, from 0 in the order of {@link Queries#words}, where the token begins and where it ends, in code points.
   */
  static byte[] of(String query, String text, Analyzer analyzer) throws IOException {
    Map<BytesRef, Integer> words = new HashMap<>();
    for (BytesRef word : Queries.words(query, analyzer).keySet()) {
      words.put(word, words.size());
    }
    IntsRefBuilder places = new IntsRefBuilder();
    try (TokenStream tokens = analyzer.tokenStream(IndexFields.TEXT, text)) {
      TermToBytesRefAttribute token = tokens.getAttribute(TermToBytesRefAttribute.class);
      OffsetAttribute offsets = tokens.addAttribute(OffsetAttribute.class);
      CodePoints codePoints = new CodePoints(text);
      tokens.reset();
      while (tokens.incrementToken()) {
        Integer word = words.get(token.getBytesRef());
        if (word != null) {
          places.append(word);
          places.append(codePoints.before(offsets.startOffset()));
          places.append(codePoints.before(offsets.endOffset()));
        }
      }
      tokens.end();
    }
    return Packed.bytes(places.toIntsRef().ints);
  }

  /** Counts the code points of a text from the last place asked for, since the next one is near it. */
  private static final class CodePoints {
    private final String text;
    private int place;
    private int count;

    CodePoints(String text) {
      this.text = text;
    }

    int before(int next) {
      count += next < place ? -text.codePointCount(next, place) : text.codePointCount(place, next);
      place = next;
      return count;
    }
  }
}
