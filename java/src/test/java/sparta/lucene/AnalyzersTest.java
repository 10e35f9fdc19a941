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
  private static List<String> tokens(String language, String text) throws IOException {
    List<String> tokens = new ArrayList<>();
    try (Analyzer analyzer = Analyzers.of(language);
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
        tokens("en", "Google's founders were at the running, quickly."));
    assertEquals(List.of(), tokens("en", "the and of ... !"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "ar", "bn", "da", "de", "es", "fa", "fi", "fr", "ha", "hi", "hu", "id", "it", "ko", "nl", "no", "pt",
        "ru", "so", "sv", "sw", "te", "th", "tr", "yo", "zh"
      })
  void everyLanguageCutsTextIntoTokens(String language) throws IOException {
    assertTrue(tokens(language, "Lucene 東京 2024 поиск Suche").size() >= 3);
  }

  @Test
  void whatComesWithPyseriniIsSaid() {
    for (String language : List.of("ja", "pl", "uk")) {
      Exception thrown = assertThrows(IllegalArgumentException.class, () -> Analyzers.of(language));
      assertTrue(thrown.getMessage().contains("'" + language + "' comes with pyserini"), thrown.getMessage());
    }
  }

  @Test
  void anUnknownLanguageIsToldTheKnownOnes() {
    Exception thrown = assertThrows(IllegalArgumentException.class, () -> Analyzers.of("xx"));
    assertTrue(thrown.getMessage().contains("'xx'") && thrown.getMessage().contains("ar, bn"), thrown.getMessage());
  }
}
