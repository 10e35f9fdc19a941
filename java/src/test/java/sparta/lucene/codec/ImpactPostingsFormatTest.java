package sparta.lucene.codec;

import org.apache.lucene.codecs.Codec;
import org.apache.lucene.tests.index.BasePostingsFormatTestCase;
import org.apache.lucene.tests.util.TestUtil;

/** Lucene's own tests of a postings format, on every field whatever its options. */
public class ImpactPostingsFormatTest extends BasePostingsFormatTestCase {
  private final Codec codec = TestUtil.alwaysPostingsFormat(new ImpactPostingsFormat());

  @Override
  protected Codec getCodec() {
    return codec;
  }
}
