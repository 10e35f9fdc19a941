package sparta.lucene.indexing;

import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/** Documents as they crossed the border, checked as a whole before anything of them is queued. */
public final class DocumentBatch {
  private final StringTable ids;
  private final StringTable raws;
  private final StringTable texts;
  private final long[] positions;
  private final int[] indptr;
  private final int[] terms;
  private final int[] impacts;
  private final StringTable ownTerms;
  private final StringTable values;
  private final int[] firstValues;
  private final Vocabulary.View vocabulary;

  /**
   * Checks the batch.
   *
   * @param ownTerms terms that no other batch knows by number: their ids follow those of the vocabulary
   */
  public DocumentBatch(
      StringTable ids,
      StringTable raws,
      StringTable texts,
      long[] positions,
      int[] indptr,
      int[] terms,
      int[] impacts,
      StringTable ownTerms,
      StringTable values,
      int[] firstValues,
      Vocabulary.View vocabulary) {
    this.ids = ids;
    this.raws = raws;
    this.texts = texts;
    this.positions = positions;
    this.indptr = indptr;
    this.terms = terms;
    this.impacts = impacts;
    this.ownTerms = ownTerms;
    this.values = values;
    this.firstValues = firstValues;
    this.vocabulary = vocabulary;
    checkLengths();
    checkOwnTerms();
    for (int document = 0; document < size(); document++) {
      checkDocument(document);
    }
  }

  public int size() {
    return ids.size();
  }

  public BytesRef id(int document) {
    return ids.bytes(document);
  }

  String idString(int document) {
    return ids.string(document);
  }

  String raw(int document) {
    return raws.string(document);
  }

  String text(int document) {
    return texts.string(document);
  }

  long position(int document) {
    return positions[document];
  }

  /** The first of the document's values among all {@link #value}s; of one past the last document, their number. */
  int firstValue(int document) {
    return firstValues[document];
  }

  /** A value of metadata as a term. */
  BytesRef value(int i) {
    return values.bytes(i);
  }

  /** The document's first posting. */
  int start(int document) {
    return indptr[document];
  }

  /** One past the document's last posting. */
  int end(int document) {
    return indptr[document + 1];
  }

  /** The document's postings, which keep the arrays and the own terms of the batch, and nothing else of it. */
  InvertedImpacts.Document postings(int document) {
    return new InvertedImpacts.Document(
        terms, impacts, start(document), end(document), ownTerms, vocabulary.size());
  }

  private void checkLengths() {
    same("raws", raws.size(), size());
    same("texts", texts.size(), size());
    same("positions", positions.length, size());
    same("indptr", indptr.length, size() + 1);
    same("impacts", impacts.length, terms.length);
    Packed.checkOffsets(indptr, terms.length, "indptr");
    same("ends of the fields", firstValues.length, size() + 1);
    Packed.checkOffsets(firstValues, values.size(), "ends of the fields");
  }

  private void checkOwnTerms() {
    for (int i = 0; i < ownTerms.size(); i++) {
      Vocabulary.checkLength(ownTerms, i, "term " + i + " of the batch's own");
    }
  }

  private void checkDocument(int document) {
    if (ids.length(document) > IndexWriter.MAX_TERM_LENGTH) {
      throw new IllegalArgumentException(
          "the id of document " + document + " of the batch has " + ids.length(document)
              + " bytes; the longest possible has " + IndexWriter.MAX_TERM_LENGTH);
    }
    for (int i = firstValues[document]; i < firstValues[document + 1]; i++) {
      if (values.length(i) > IndexWriter.MAX_TERM_LENGTH) {
        throw refused(document, "a value of metadata has " + values.length(i) + " bytes; shorten it");
      }
    }
    int termCount = vocabulary.size() + ownTerms.size();
    long sum = 0;
    for (int posting = start(document); posting < end(document); posting++) {
      int term = terms[posting];
      if (term < 0 || term >= termCount) {
        throw refused(document, "term id " + term + " is outside the vocabulary of " + termCount + " terms");
      }
      if (impacts[posting] < 1) {
        throw refused(document, "impact " + impacts[posting] + " of term id " + term + "; impacts are 1 or more");
      }
      sum += impacts[posting];
    }
    if (sum > Integer.MAX_VALUE) {
      throw refused(document, "impacts that sum to " + sum + "; Lucene counts up to " + Integer.MAX_VALUE);
    }
  }

  private IllegalArgumentException refused(int document, String why) {
    return new IllegalArgumentException("document " + idString(document) + ": " + why);
  }

  private static void same(String name, int found, int expected) {
    if (found != expected) {
      throw new IllegalArgumentException(name + ": expected " + expected + " entries, found " + found);
    }
  }
}
