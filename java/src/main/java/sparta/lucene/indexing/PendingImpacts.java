package sparta.lucene.indexing;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.BitUtil;
import org.apache.lucene.util.BytesRef;

/**
 * Impacts of documents that are indexed and not yet flushed.
 *
 * <p>Lucene inverts text token by token. Impacts come as arrays, and are inverted at once when a segment is flushed
 * ({@link InvertedImpacts}), for a small part of the time. Until then Lucene holds, in place of a document's tokens,
 * one that names its arrays: a number of eight bytes.
 */
public final class PendingImpacts {
  private final Map<Long, InvertedImpacts.Document> documents = new ConcurrentHashMap<>();
  private final AtomicLong numbers = new AtomicLong();
  private final AtomicLong bytes = new AtomicLong();
  private volatile Vocabulary.View vocabulary = new Vocabulary().view();

  /** Makes the terms known that documents from now on may have; what was known must be their beginning. */
  public void know(Vocabulary.View terms) {
    vocabulary = terms;
  }

  /** Keeps a document's impacts; the token that names them. */
  BytesRef add(DocumentBatch batch, int document) {
    long number = numbers.getAndIncrement();
    InvertedImpacts.Document kept = batch.postings(document);
    documents.put(number, kept);
    bytes.addAndGet(size(kept));
    byte[] token = new byte[Long.BYTES];
    BitUtil.VH_BE_LONG.set(token, 0, number);
    return new BytesRef(token);
  }

  private static long size(InvertedImpacts.Document document) {
    return 2L * Integer.BYTES * (document.end() - document.begin()) + document.ownBytes();
  }

  /** How much memory the impacts take. The arrays of a batch are let go of with the last of its documents. */
  public long bytes() {
    return bytes.get();
  }

  /** Lets go of all documents. */
  public void clear() {
    documents.clear();
    bytes.set(0);
  }

  /**
   * Lets go of the documents that the tokens of a segment name.
   *
   * @param tokens may be {@code null}: no document has impacts
   */
  InvertedImpacts take(Terms tokens, int maxDoc) throws IOException {
    InvertedImpacts.Document[] taken = new InvertedImpacts.Document[maxDoc];
    if (tokens != null) {
      TermsEnum token = tokens.iterator();
      PostingsEnum postings = null;
      for (BytesRef name = token.next(); name != null; name = token.next()) {
        InvertedImpacts.Document kept = documents.remove((long) BitUtil.VH_BE_LONG.get(name.bytes, name.offset));
        bytes.addAndGet(-size(kept));
        postings = token.postings(postings, PostingsEnum.NONE);
        for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
          taken[doc] = kept;
        }
      }
    }
    return new InvertedImpacts(taken, vocabulary);
  }
}
