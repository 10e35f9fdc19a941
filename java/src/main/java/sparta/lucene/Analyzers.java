package sparta.lucene;

import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.LowerCaseFilter;
import org.apache.lucene.analysis.StopFilter;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.Tokenizer;
import org.apache.lucene.analysis.cjk.CJKBigramFilter;
import org.apache.lucene.analysis.cjk.CJKWidthFilter;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.analysis.en.EnglishPossessiveFilter;
import org.apache.lucene.analysis.en.PorterStemFilter;
import org.apache.lucene.analysis.standard.StandardTokenizer;

/**
 * The analysis of the field {@code text}, by name: one of ours, or a class of Lucene's named from its package {@code
 * org.apache.lucene.analysis} on, as in {@code de.GermanAnalyzer}. Which language has which is said in Python
 * (sparta.data.languages).
 */
public final class Analyzers {
  private static final String LUCENE = "org.apache.lucene.analysis.";
  private static final Map<String, Supplier<Analyzer>> OURS =
      new TreeMap<>(Map.of("english", English::new, "cjk-bigrams-and-unigrams", BigramsAndUnigrams::new));

  private Analyzers() {}

  /** A new analyzer; an {@link IllegalArgumentException} for a name that is none. */
  static Analyzer of(String name) {
    Supplier<Analyzer> ours = OURS.get(name);
    if (ours != null) {
      return ours.get();
    }
    try {
      Class<?> known = Class.forName(LUCENE + name);
      return known.asSubclass(Analyzer.class).getDeclaredConstructor().newInstance();
    } catch (ClassNotFoundException e) {
      throw new IllegalArgumentException(
          "the analyzer '" + name + "' is not here: expected " + String.join(", ", OURS.keySet()) + " or a class below "
              + LUCENE + ", as de.GermanAnalyzer; those of ja, pl and uk come with pyserini:"
              + " pip install 'sparta-search[pyserini]'",
          e);
    } catch (InvocationTargetException e) {
      throw new IllegalArgumentException("the analyzer '" + name + "' cannot be made: " + e.getCause(), e);
    } catch (ReflectiveOperationException | ClassCastException e) {
      throw new IllegalArgumentException("'" + name + "' is no analyzer that can be made without settings: " + e, e);
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

  /**
   * Chinese, Japanese and Korean: each character, and each two that stand side by side; words of other scripts in lower
   * case.
   */
  private static final class BigramsAndUnigrams extends Analyzer {
    private static final int ALL =
        CJKBigramFilter.HAN | CJKBigramFilter.HIRAGANA | CJKBigramFilter.KATAKANA | CJKBigramFilter.HANGUL;

    @Override
    protected TokenStreamComponents createComponents(String field) {
      Tokenizer words = new StandardTokenizer();
      return new TokenStreamComponents(words, new CJKBigramFilter(normalize(field, words), ALL, true));
    }

    @Override
    protected TokenStream normalize(String field, TokenStream in) {
      return new LowerCaseFilter(new CJKWidthFilter(in));
    }
  }
}
