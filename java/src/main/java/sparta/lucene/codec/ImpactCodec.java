package sparta.lucene.codec;

import org.apache.lucene.codecs.Codec;
import org.apache.lucene.codecs.CompoundFormat;
import org.apache.lucene.codecs.DocValuesFormat;
import org.apache.lucene.codecs.FieldInfosFormat;
import org.apache.lucene.codecs.KnnVectorsFormat;
import org.apache.lucene.codecs.LiveDocsFormat;
import org.apache.lucene.codecs.NormsFormat;
import org.apache.lucene.codecs.PointsFormat;
import org.apache.lucene.codecs.PostingsFormat;
import org.apache.lucene.codecs.SegmentInfoFormat;
import org.apache.lucene.codecs.StoredFieldsFormat;
import org.apache.lucene.codecs.TermVectorsFormat;
import org.apache.lucene.codecs.perfield.PerFieldPostingsFormat;
import sparta.lucene.util.IndexFields;

/**
 * Lucene's codec, but for the postings of {@link IndexFields#CONTENTS}, which {@link ImpactPostingsFormat} keeps.
 *
 * <p>It names Lucene's formats instead of linking them, so that a later Lucene reads them by its backward codecs
 * (decision 0033). Lucene forbids looking up a codec while it loads codecs, so each call looks it up.
 */
public final class ImpactCodec extends Codec {
  /** By this name a segment says what reads it. */
  static final String NAME = "Sparta104";

  /** The codec of Lucene that belongs to the name. */
  static final String LUCENE = "Lucene104";

  private final PostingsFormat postings =
      new PerFieldPostingsFormat() {
        @Override
        public PostingsFormat getPostingsFormatForField(String field) {
          return PostingsFormat.forName(
              field.equals(IndexFields.CONTENTS) ? ImpactPostingsFormat.NAME : ImpactPostingsFormat.LUCENE);
        }
      };

  /** For Lucene, which finds codecs by name. */
  public ImpactCodec() {
    super(NAME);
  }

  /** The codec that a writer is asked for: {@code fast} is this one, {@code lucene} Lucene's own. */
  public static Codec of(String name) {
    return switch (name) {
      case "fast" -> forName(NAME);
      case "lucene" -> forName(LUCENE);
      default -> throw new IllegalArgumentException("unknown codec '" + name + "'; known are fast, lucene");
    };
  }

  private static Codec lucene() {
    return forName(LUCENE);
  }

  @Override
  public PostingsFormat postingsFormat() {
    return postings;
  }

  @Override
  public DocValuesFormat docValuesFormat() {
    return lucene().docValuesFormat();
  }

  @Override
  public StoredFieldsFormat storedFieldsFormat() {
    return lucene().storedFieldsFormat();
  }

  @Override
  public TermVectorsFormat termVectorsFormat() {
    return lucene().termVectorsFormat();
  }

  @Override
  public FieldInfosFormat fieldInfosFormat() {
    return lucene().fieldInfosFormat();
  }

  @Override
  public SegmentInfoFormat segmentInfoFormat() {
    return lucene().segmentInfoFormat();
  }

  @Override
  public NormsFormat normsFormat() {
    return lucene().normsFormat();
  }

  @Override
  public LiveDocsFormat liveDocsFormat() {
    return lucene().liveDocsFormat();
  }

  @Override
  public CompoundFormat compoundFormat() {
    return lucene().compoundFormat();
  }

  @Override
  public PointsFormat pointsFormat() {
    return lucene().pointsFormat();
  }

  @Override
  public KnnVectorsFormat knnVectorsFormat() {
    return lucene().knnVectorsFormat();
  }
}
