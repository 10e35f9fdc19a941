package sparta.lucene;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.StopFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.ar.ArabicAnalyzer;
import org.apache.lucene.analysis.bn.BengaliAnalyzer;
import org.apache.lucene.analysis.cjk.CJKAnalyzer;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.analysis.da.DanishAnalyzer;
import org.apache.lucene.analysis.de.GermanAnalyzer;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.en.EnglishPossessiveFilter;
import org.apache.lucene.analysis.en.PorterStemFilter;
import org.apache.lucene.analysis.es.SpanishAnalyzer;
import org.apache.lucene.analysis.fa.PersianAnalyzer;
import org.apache.lucene.analysis.fi.FinnishAnalyzer;
import org.apache.lucene.analysis.fr.FrenchAnalyzer;
import org.apache.lucene.analysis.hi.HindiAnalyzer;
import org.apache.lucene.analysis.hu.HungarianAnalyzer;
import org.apache.lucene.analysis.id.IndonesianAnalyzer;
import org.apache.lucene.analysis.it.ItalianAnalyzer;
import org.apache.lucene.analysis.nl.DutchAnalyzer;
import org.apache.lucene.analysis.no.NorwegianAnalyzer;
import org.apache.lucene.analysis.pt.PortugueseAnalyzer;
import org.apache.lucene.analysis.ru.RussianAnalyzer;
import org.apache.lucene.analysis.standard.StandardTokenizer;
import org.apache.lucene.analysis.sv.SwedishAnalyzer;
import org.apache.lucene.analysis.te.TeluguAnalyzer;
import org.apache.lucene.analysis.th.ThaiAnalyzer;
import org.apache.lucene.analysis.tr.TurkishAnalyzer;

/** The analysis of the field {@code text} by language: for each the one that Pyserini's searchers use. */
public final class Analyzers {
  private static final Map<String, Supplier<Analyzer>> BY_LANGUAGE = new TreeMap<>();

  static {
    BY_LANGUAGE.put("ar", ArabicAnalyzer::new);
    BY_LANGUAGE.put("bn", BengaliAnalyzer::new);
    BY_LANGUAGE.put("da", DanishAnalyzer::new);
    BY_LANGUAGE.put("de", GermanAnalyzer::new);
    BY_LANGUAGE.put("en", English::new);
    BY_LANGUAGE.put("es", SpanishAnalyzer::new);
    BY_LANGUAGE.put("fa", PersianAnalyzer::new);
    BY_LANGUAGE.put("fi", FinnishAnalyzer::new);
    BY_LANGUAGE.put("fr", FrenchAnalyzer::new);
    BY_LANGUAGE.put("ha", WhitespaceAnalyzer::new);
    BY_LANGUAGE.put("hi", HindiAnalyzer::new);
    BY_LANGUAGE.put("hu", HungarianAnalyzer::new);
    BY_LANGUAGE.put("id", IndonesianAnalyzer::new);
    BY_LANGUAGE.put("it", ItalianAnalyzer::new);
    // Not in Lucene's common analyzers, but in Anserini's jar.
    BY_LANGUAGE.put("ja", () -> byName("ja", "org.apache.lucene.analysis.ja.JapaneseAnalyzer"));
    BY_LANGUAGE.put("ko", CJKAnalyzer::new);
    BY_LANGUAGE.put("nl", DutchAnalyzer::new);
    BY_LANGUAGE.put("no", NorwegianAnalyzer::new);
    BY_LANGUAGE.put("pl", () -> byName("pl", "org.apache.lucene.analysis.morfologik.MorfologikAnalyzer"));
    BY_LANGUAGE.put("pt", PortugueseAnalyzer::new);
    BY_LANGUAGE.put("ru", RussianAnalyzer::new);
    BY_LANGUAGE.put("so", WhitespaceAnalyzer::new);
    BY_LANGUAGE.put("sv", SwedishAnalyzer::new);
    BY_LANGUAGE.put("sw", WhitespaceAnalyzer::new);
    BY_LANGUAGE.put("te", TeluguAnalyzer::new);
    BY_LANGUAGE.put("th", ThaiAnalyzer::new);
    BY_LANGUAGE.put("tr", TurkishAnalyzer::new);
    BY_LANGUAGE.put("uk", () -> byName("uk", "org.apache.lucene.analysis.uk.UkrainianMorfologikAnalyzer"));
    BY_LANGUAGE.put("yo", WhitespaceAnalyzer::new);
    BY_LANGUAGE.put("zh", CJKAnalyzer::new);
  }

  private Analyzers() {}

  /** The codes of the known languages, in alphabetical order, with a comma and a blank between them. */
  public static String known() {
    return String.join(", ", BY_LANGUAGE.keySet());
  }

  /** A new analyzer; an {@link IllegalArgumentException} that names the known languages for any other. */
  static Analyzer of(String language) {
    Supplier<Analyzer> known = BY_LANGUAGE.get(language);
    if (known == null) {
      throw new IllegalArgumentException(
          "unknown language '" + language + "'; known are " + known());
    }
    return known.get();
  }

  private static Analyzer byName(String language, String className) {
    try {
      return (Analyzer) Class.forName(className).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException e) {
      throw new IllegalArgumentException(
          "the analyzer of language '" + language + "' comes with pyserini, which is not installed here:"
              + " pip install 'sparta-search[pyserini]'",
          e);
    }
  }

  /** English: words without possessives, in lower case, without stop words, Porter's stems. */
  private static final class English extends Analyzer {
    @Override
    protected TokenStreamComponents createComponents(String field) {
      Tokenizer words = new StandardTokenizer();
      TokenStream tokens = new LowerCaseFilter(new EnglishPossessiveFilter(words));
      tokens = new StopFilter(tokens, EnglishAnalyzer.getDefaultStopSet());
      return new TokenStreamComponents(words, new PorterStemFilter(tokens));
    }

    @Override
    protected TokenStream normalize(String field, TokenStream in) {
      return new LowerCaseFilter(in);
    }
  }
}
