package sparta.lucene;

import java.util.Iterator;
import java.util.List;
import org.apache.lucene.document.BinaryDocValuesField;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.IndexableField;
import org.apache.lucene.util.BytesRef;

/** The fields of one document; one instance serves one thread and all its documents. */
final class ImpactDocument implements Iterable<IndexableField> {
  private final Field id = new StringField(Fields.ID, "", Field.Store.YES);
  private final Field idValue = new BinaryDocValuesField(Fields.ID, new BytesRef());
  private final Field raw = new StoredField(Fields.RAW, "");
  private final OneToken impacts = new OneToken();
  private final Field contents = new Field(Fields.CONTENTS, impacts, Fields.CONTENTS_TYPE);
  private final Field text = new Field(Fields.TEXT, "", Fields.TEXT_TYPE);
  private final Field position = new NumericDocValuesField(Fields.POSITION, 0);
  private final List<IndexableField> fields = List.of(id, idValue, raw, contents, text, position);

  /**
   * Takes on one document of the batch.
   *
   * @param pending keeps its impacts until they are flushed
   */
  ImpactDocument set(DocumentBatch batch, int document, PendingImpacts pending) {
    id.setStringValue(batch.idString(document));
    idValue.setBytesValue(batch.id(document));
    raw.setStringValue(batch.raw(document));
    impacts.set(batch.end(document) > batch.start(document) ? pending.add(batch, document) : null);
    text.setStringValue(batch.text(document));
    position.setLongValue(batch.position(document));
    return this;
  }

  @Override
  public Iterator<IndexableField> iterator() {
    return fields.iterator();
  }
}
