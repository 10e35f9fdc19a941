package sparta.lucene.codec;

import org.apache.lucene.codecs.Codec;
import org.apache.lucene.codecs.FilterCodec;
import org.apache.lucene.codecs.PostingsFormat;
import org.apache.lucene.codecs.lucene104.Lucene104Codec;
import org.apache.lucene.codecs.perfield.PerFieldPostingsFormat;
import sparta.lucene.util.IndexFields;

/** Lucene's codec, but for the postings of {@link IndexFields#CONTENTS}, which {@link ImpactPostingsFormat} keeps. */
public final class ImpactCodec extends FilterCodec {
  /** By this name a segment says what reads it. */
  static final String NAME = "Sparta104";

  private final PostingsFormat postings;

  /** For Lucene, which finds codecs by name. */
  public ImpactCodec() {
    super(NAME, new Lucene104Codec());
    PostingsFormat impacts = new ImpactPostingsFormat();
    PostingsFormat others = ((Lucene104Codec) delegate).getPostingsFormatForField("");
    postings =
        new PerFieldPostingsFormat() {
          @Override
          public PostingsFormat getPostingsFormatForField(String field) {
            return field.equals(IndexFields.CONTENTS) ? impacts : others;
          }
        };
  }

  /** The codec that a writer is asked for: {@code fast} is this one, {@code lucene} Lucene's own. */
  public static Codec of(String name) {
    return switch (name) {
      case "fast" -> new ImpactCodec();
      case "lucene" -> new Lucene104Codec();
      default -> throw new IllegalArgumentException("unknown codec '" + name + "'; known are fast, lucene");
    };
  }

  @Override
  public PostingsFormat postingsFormat() {
    return postings;
  }
}
