package sparta.lucene.util;

import org.apache.lucene.document.FieldType;
import org.apache.lucene.index.IndexOptions;

/** The fields of a document; Anserini's searchers know them by the same names. */
public final class IndexFields {
  /** Passage id: indexed whole, stored, and a binary doc value. */
  public static final String ID = "id";

  /** The record as it was read; stored only. */
  public static final String RAW = "raw";

  /** Impacts, kept as term frequencies. */
  public static final String CONTENTS = "contents";

  /** Title and text, analyzed, for BM25. */
  public static final String TEXT = "text";

  /** Number of tokens of {@link #TEXT}; a doc value, which segments written by older versions lack. */
  public static final String TEXT_LENGTH = "text_length";

  /** Position in the corpus, which decides ties. */
  public static final String POSITION = "position";

  /** Metadata: terms {@code name 0 value}, indexed whole, and as doc values. */
  public static final String METADATA = "metadata";

  /** Metadata that is a number: points (hash of the name, number). */
  public static final String NUMBERS = "metadata_numbers";

  /** Impacts need neither norms (a norm of 1 is implied) nor token positions. */
  public static final FieldType CONTENTS_TYPE = indexed(true);

  /** BM25 needs the length of the text, which Lucene keeps as the norm. */
  public static final FieldType TEXT_TYPE = indexed(false);

  private IndexFields() {}

  private static FieldType indexed(boolean omitNorms) {
    FieldType type = new FieldType();
    type.setTokenized(true);
    type.setIndexOptions(IndexOptions.DOCS_AND_FREQS);
    type.setOmitNorms(omitNorms);
    type.freeze();
    return type;
  }
}
