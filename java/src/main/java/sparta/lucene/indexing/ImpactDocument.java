package sparta.lucene.indexing;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.lucene.document.BinaryDocValuesField;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.NumericDocValuesField;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.IndexableField;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.IndexFields;

/** The fields of one document; one instance serves one thread and all its documents. */
public final class ImpactDocument implements Iterable<IndexableField> {
  private final Field id = new StringField(IndexFields.ID, "", Field.Store.YES);
  private final Field idValue = new BinaryDocValuesField(IndexFields.ID, new BytesRef());
  private final Field raw = new StoredField(IndexFields.RAW, "");
  private final SingleTokenStream impacts = new SingleTokenStream();
  private final Field contents = new Field(IndexFields.CONTENTS, impacts, IndexFields.CONTENTS_TYPE);
  private final CountedText text = new CountedText();
  private final Field position = new NumericDocValuesField(IndexFields.POSITION, 0);
  private final MetadataFields metadata = new MetadataFields();
  private final List<IndexableField> always = List.of(id, idValue, raw, contents, text, text.length, position);
  private final List<IndexableField> fields = new ArrayList<>(always);

  /**
   * Takes on one document of the batch.
   *
   * @param pending keeps its impacts until they are flushed
   */
  public ImpactDocument set(DocumentBatch batch, int document, PendingImpacts pending) {
    id.setStringValue(batch.idString(document));
    idValue.setBytesValue(batch.id(document));
    raw.setStringValue(batch.raw(document));
    impacts.set(batch.end(document) > batch.start(document) ? pending.add(batch, document) : null);
    text.setStringValue(batch.text(document));
    position.setLongValue(batch.position(document));
    fields.subList(always.size(), fields.size()).clear();
    metadata.addTo(fields, batch, document);
    return this;
  }

  @Override
  public Iterator<IndexableField> iterator() {
    return fields.iterator();
  }
}
