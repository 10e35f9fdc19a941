package sparta.lucene;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AnalyzersTest {
  private static List<String> tokens(String name, String text) throws IOException {
    List<String> tokens = new ArrayList<>();
    try (Analyzer analyzer = Analyzers.of(name);
        TokenStream stream = analyzer.tokenStream("text", text)) {
      CharTermAttribute token = stream.addAttribute(CharTermAttribute.class);
      stream.reset();
      while (stream.incrementToken()) {
        tokens.add(token.toString());
      }
      stream.end();
    }
    return tokens;
  }

  @Test
  void englishIsStemmedWithoutPossessivesAndStopWords() throws IOException {
    assertEquals(
        List.of("googl", "founder", "were", "run", "quickli"),
        tokens("english", "Google's founders were at the running, quickly."));
    assertEquals(List.of(), tokens("english", "the and of ... !"));
  }

  @Test
  void aCharacterAndEachTwoSideBySide() throws IOException {
    assertEquals(
        List.of("北", "北京", "京", "京大", "大", "gps", "東"), tokens("cjk-bigrams-and-unigrams", "北京大 ＧＰＳ，東"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"cjk.CJKAnalyzer", "core.WhitespaceAnalyzer", "de.GermanAnalyzer", "standard.StandardAnalyzer"})
  void aClassOfLucenesIsNamedFromItsPackageOn(String name) throws IOException {
    assertTrue(tokens(name, "Lucene 東京 2024 поиск Suche").size() >= 3);
  }

  @Test
  void whatComesWithPyseriniIsSaid() {
    Exception thrown = assertThrows(IllegalArgumentException.class, () -> Analyzers.of("ja.JapaneseAnalyzer"));
    assertTrue(thrown.getMessage().contains("'ja.JapaneseAnalyzer' is not here"), thrown.getMessage());
    assertTrue(thrown.getMessage().contains("sparta-search[pyserini]"), thrown.getMessage());
  }

  @ParameterizedTest
  @ValueSource(strings = {"core.LowerCaseFilter", "en.AbstractWordsFileFilterFactory", "core.FlattenGraphFilter"})
  void whatIsNoAnalyzerIsRefused(String name) {
    assertThrows(IllegalArgumentException.class, () -> Analyzers.of(name));
  }
}
