package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.index.IndexReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.MultiBits;
import org.apache.lucene.index.MultiTerms;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.IntSequence;
import sparta.lucene.util.Packed;
import sparta.lucene.util.StringTable;

/** Impacts read back, by passage and by term. */
final class ImpactReader {
  private final IndexReader reader;
  private final Lookup lookup;

  ImpactReader(IndexReader reader, Lookup lookup) {
    this.reader = reader;
    this.lookup = lookup;
  }

  /** The impact of a term in a passage, 0 when the passage lacks it. */
  int impact(int docid, BytesRef term) throws IOException {
    LeafReaderContext leaf = lookup.leaf(docid);
    Terms terms = leaf.reader().terms(IndexFields.CONTENTS);
    if (terms == null) {
      return 0;
    }
    TermsEnum cursor = terms.iterator();
    return cursor.seekExact(term) ? impactAt(cursor.postings(null, PostingsEnum.FREQS), docid - leaf.docBase) : 0;
  }

  /** All impacts of a passage; their terms, in byte order, are added to {@code found}. Reads the whole dictionary. */
  int[] vector(int docid, List<BytesRef> found) throws IOException {
    LeafReaderContext leaf = lookup.leaf(docid);
    IntSequence impacts = new IntSequence();
    Terms terms = leaf.reader().terms(IndexFields.CONTENTS);
    TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
    PostingsEnum postings = null;
    for (BytesRef term = cursor.next(); term != null; term = cursor.next()) {
      postings = cursor.postings(postings, PostingsEnum.FREQS);
      int impact = impactAt(postings, docid - leaf.docBase);
      if (impact > 0) {
        impacts.add(impact);
        found.add(BytesRef.deepCopyOf(term));
      }
    }
    return impacts.toArray();
  }

  /** See {@link ImpactSearcher#postings}. */
  byte[] page(BytesRef after, int budget) throws IOException {
    IntSequence indptr = new IntSequence();
    IntSequence docids = new IntSequence();
    IntSequence impacts = new IntSequence();
    List<BytesRef> found = new ArrayList<>();
    indptr.add(0);
    Bits live = MultiBits.getLiveDocs(reader);
    Terms terms = MultiTerms.getTerms(reader, IndexFields.CONTENTS);
    TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
    for (BytesRef term = first(cursor, after); term != null; term = cursor.next()) {
      if (!found.isEmpty() && (long) docids.size() + cursor.docFreq() > budget) {
        break;
      }
      copy(cursor, live, docids, impacts);
      if (docids.size() > indptr.get(found.size())) {
        found.add(BytesRef.deepCopyOf(term));
        indptr.add(docids.size());
      }
    }
    ByteBuffer head = Packed.writer((2L + found.size() + 2L * docids.size()) * Integer.BYTES);
    head.putInt(found.size());
    indptr.writeTo(head);
    docids.writeTo(head);
    impacts.writeTo(head);
    return StringTable.pack(head.array(), found);
  }

  private static BytesRef first(TermsEnum cursor, BytesRef after) throws IOException {
    if (after == null) {
      return cursor.next();
    }
    return switch (cursor.seekCeil(after)) {
      case FOUND -> cursor.next();
      case NOT_FOUND -> cursor.term();
      case END -> null;
    };
  }

  private static void copy(TermsEnum cursor, Bits live, IntSequence docids, IntSequence impacts) throws IOException {
    PostingsEnum postings = cursor.postings(null, PostingsEnum.FREQS);
    for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
      if (live == null || live.get(doc)) {
        docids.add(doc);
        impacts.add(postings.freq());
      }
    }
  }

  private static int impactAt(PostingsEnum postings, int doc) throws IOException {
    return postings.advance(doc) == doc ? postings.freq() : 0;
  }
}
