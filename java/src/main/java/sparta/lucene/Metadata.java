package sparta.lucene;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.SortedSetDocValues;
import org.apache.lucene.index.Term;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermInSetQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TermRangeQuery;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefBuilder;
import org.apache.lucene.util.StringHelper;
import sparta.lucene.filtering.KeptDocs;
import sparta.lucene.filtering.NumberRange;
import sparta.lucene.indexing.MetadataFields;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.StringTable;

/** What is asked of the metadata of passages: filters, the values of a field, which fields there are. */
final class Metadata {
  /** Filters whose documents are remembered: one bit per document for each. */
  private static final int REMEMBERED = 16;

  /** So many terms are read sooner one by one than by Lucene's query for sets. */
  private static final int FEW = 64;

  private final IndexSearcher searcher;
  private final Map<ByteBuffer, KeptDocs> kept =
      new LinkedHashMap<>(REMEMBERED, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<ByteBuffer, KeptDocs> eldest) {
          return size() > REMEMBERED;
        }
      };

  Metadata(IndexSearcher searcher) {
    this.searcher = searcher;
  }

  /**
   * The documents that a filter keeps, {@code null} for an empty one, which is none.
   *
   * @param filter string table of conditions that all must hold: {@code in n term…}, {@code numbers field low high}
   *     (both included), {@code texts low high} (terms from the first to before the second)
   */
  KeptDocs kept(byte[] filter) throws IOException {
    if (filter.length == 0) {
      return null;
    }
    ByteBuffer key = ByteBuffer.wrap(filter);
    synchronized (kept) {
      KeptDocs known = kept.get(key);
      if (known != null) {
        return known;
      }
    }
    List<BytesRef> fields = new ArrayList<>();
    KeptDocs found = KeptDocs.of(query(StringTable.unpack(filter, "filter"), fields), searcher);
    if (found.isEmpty()) {
      for (BytesRef field : fields) {
        check(field);
      }
    }
    synchronized (kept) {
      kept.put(key, found);
    }
    return found;
  }

  /** The filter as a query of Lucene's; the fields that it names are added to a list. */
  private Query query(StringTable parts, List<BytesRef> fields) throws IOException {
    BooleanQuery.Builder all = new BooleanQuery.Builder();
    int leaves = 0;
    for (int at = 0; at < parts.size(); ) {
      Query condition;
      switch (parts.string(at++)) {
        case "in" -> {
          List<BytesRef> terms = new ArrayList<>();
          for (int n = Integer.parseInt(parts.string(at++)); n > 0; n--) {
            terms.add(parts.bytes(at++));
          }
          fields.add(MetadataFields.name(terms.getFirst()));
          condition = terms.size() > FEW ? new TermInSetQuery(IndexFields.METADATA, terms) : oneOf(terms);
        }
        case "numbers" -> {
          BytesRef field = parts.bytes(at++);
          fields.add(field);
          long name = MetadataFields.hash(field);
          long low = MetadataFields.sortable(number(parts.string(at++)));
          long high = MetadataFields.sortable(number(parts.string(at++)));
          condition = new NumberRange(IndexFields.NUMBERS, name, low, high);
        }
        case "texts" -> {
          BytesRef low = parts.bytes(at++);
          fields.add(MetadataFields.name(low));
          condition = new TermRangeQuery(IndexFields.METADATA, low, parts.bytes(at++), true, false);
        }
        default -> throw new IllegalArgumentException("filter: an unknown condition, " + parts.string(at - 1));
      }
      if ((leaves += FEW) >= IndexSearcher.getMaxClauseCount()) { // Lucene counts all conditions, and their terms
        all = new BooleanQuery.Builder().add(KeptDocs.of(all.build(), searcher), BooleanClause.Occur.FILTER);
        leaves = 2 * FEW;
      }
      all.add(condition, BooleanClause.Occur.FILTER);
    }
    return all.build();
  }

  private static Query oneOf(List<BytesRef> terms) {
    BooleanQuery.Builder some = new BooleanQuery.Builder();
    for (BytesRef term : terms) {
      some.add(new TermQuery(new Term(IndexFields.METADATA, term)), BooleanClause.Occur.SHOULD);
    }
    return some.build();
  }

  private static double number(String text) {
    return Double.parseDouble(text.replace("inf", "Infinity"));
  }

  /** The names of all fields, in byte order. */
  TreeSet<BytesRef> fields() throws IOException {
    TreeSet<BytesRef> found = new TreeSet<>();
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.METADATA);
      TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
      BytesRef term = cursor.next();
      while (term != null) {
        BytesRef name = BytesRef.deepCopyOf(MetadataFields.name(term));
        found.add(name);
        term = cursor.seekCeil(after(name, 1)) == TermsEnum.SeekStatus.END ? null : cursor.term();
      }
    }
    return found;
  }

  /** Refuses a field that no document has. */
  private void check(BytesRef field) throws IOException {
    BytesRef first = after(field, 0);
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.METADATA);
      TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
      if (cursor.seekCeil(first) != TermsEnum.SeekStatus.END && StringHelper.startsWith(cursor.term(), first)) {
        return;
      }
    }
    List<String> known = fields().stream().map(BytesRef::utf8ToString).toList();
    throw new IllegalArgumentException(
        "expected a metadata field of the passages (%s), found %s"
            .formatted(known.isEmpty() ? "they have none" : String.join(", ", known), field.utf8ToString()));
  }

  /** A field's name and one byte more. */
  private static BytesRef after(BytesRef name, int last) {
    BytesRefBuilder term = new BytesRefBuilder();
    term.append(name);
    term.append((byte) last);
    return term.get();
  }

  /**
   * What documents have in a field: {@code =} and its values, in byte order, with zero bytes between them; nothing
   * where they lack it.
   */
  BytesRef[] keys(int[] docids, String field, Lookup lookup) throws IOException {
    BytesRef name = new BytesRef(field.getBytes(StandardCharsets.UTF_8));
    check(name);
    BytesRef[] keys = new BytesRef[docids.length];
    lookup.inDocOrder(
        docids,
        leaf -> {
          SortedSetDocValues values = DocValues.getSortedSet(leaf.reader(), IndexFields.METADATA);
          long first = ceil(values, after(name, 0));
          long end = ceil(values, after(name, 1));
          return (slot, doc) -> keys[slot] = values.advanceExact(doc) ? key(values, first, end, name.length + 1) : null;
        });
    return keys;
  }

  private static long ceil(SortedSetDocValues values, BytesRef term) throws IOException {
    long found = values.lookupTerm(term);
    return found < 0 ? -1 - found : found;
  }

  private static BytesRef key(SortedSetDocValues values, long first, long end, int prefix) throws IOException {
    BytesRefBuilder key = new BytesRefBuilder();
    for (int i = values.docValueCount(); i > 0; i--) {
      long ord = values.nextOrd();
      if (first <= ord && ord < end) {
        BytesRef term = values.lookupOrd(ord);
        key.append((byte) (key.length() == 0 ? '=' : 0));
        key.append(term.bytes, term.offset + prefix, term.length - prefix);
      }
    }
    return key.get();
  }
}
