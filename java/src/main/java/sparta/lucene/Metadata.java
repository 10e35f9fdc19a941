package sparta.lucene;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.lucene.index.DocValues;
import org.apache.lucene.index.LeafReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.SortedSetDocValues;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefBuilder;
import org.apache.lucene.util.StringHelper;
import sparta.lucene.filtering.FilterReader;
import sparta.lucene.filtering.KeptDocs;
import sparta.lucene.indexing.MetadataFields;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.StringTable;

/** What is asked of the metadata of passages: filters, the values of a field, which fields there are. */
final class Metadata {
  /** Filters whose documents are remembered: one bit per document for each. */
  private static final int REMEMBERED = 16;

  private final IndexSearcher searcher;

  /** Fields that a live document has: in a segment with deletions, a check may read many postings. */
  private final Set<BytesRef> checked = ConcurrentHashMap.newKeySet();

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
   * @param filter as {@link FilterReader} reads it
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
    FilterReader read = new FilterReader(filter, searcher);
    KeptDocs found = read.kept();
    if (found.isEmpty() || read.keepsMissing()) {
      for (BytesRef field : read.fields()) {
        check(field);
      }
    }
    synchronized (kept) {
      kept.put(key, found);
    }
    return found;
  }

  /** The names of all fields of live documents, in byte order. */
  TreeSet<BytesRef> fields() throws IOException {
    TreeSet<BytesRef> found = new TreeSet<>();
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.METADATA);
      TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
      BytesRef term = cursor.next();
      while (term != null) {
        BytesRef name = BytesRef.deepCopyOf(MetadataFields.name(term));
        if (!found.contains(name) && hasLive(leaf.reader(), cursor, FilterReader.after(name, 0))) {
          found.add(name);
        }
        term = cursor.seekCeil(FilterReader.after(name, 1)) == TermsEnum.SeekStatus.END ? null : cursor.term();
      }
    }
    return found;
  }

  /** Refuses a field that no live document has. */
  private void check(BytesRef field) throws IOException {
    if (checked.contains(field)) {
      return;
    }
    BytesRef first = FilterReader.after(field, 0);
    for (LeafReaderContext leaf : searcher.getIndexReader().leaves()) {
      Terms terms = leaf.reader().terms(IndexFields.METADATA);
      TermsEnum cursor = terms == null ? TermsEnum.EMPTY : terms.iterator();
      if (cursor.seekCeil(first) != TermsEnum.SeekStatus.END && hasLive(leaf.reader(), cursor, first)) {
        checked.add(BytesRef.deepCopyOf(field));
        return;
      }
    }
    List<String> known = fields().stream().map(BytesRef::utf8ToString).toList();
    throw new IllegalArgumentException(
        "expected a metadata field of the passages (%s), found %s"
            .formatted(known.isEmpty() ? "they have none" : String.join(", ", known), field.utf8ToString()));
  }

  /** Whether a live document has one of the terms with a prefix, from the cursor's term on. */
  private static boolean hasLive(LeafReader segment, TermsEnum cursor, BytesRef prefix) throws IOException {
    Bits live = segment.getLiveDocs();
    PostingsEnum postings = null;
    for (BytesRef term = cursor.term(); term != null && StringHelper.startsWith(term, prefix); term = cursor.next()) {
      if (live == null) {
        return true;
      }
      postings = cursor.postings(postings, PostingsEnum.NONE);
      for (int doc = postings.nextDoc(); doc != DocIdSetIterator.NO_MORE_DOCS; doc = postings.nextDoc()) {
        if (live.get(doc)) {
          return true;
        }
      }
    }
    return false;
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
          long first = ceil(values, FilterReader.after(name, 0));
          long end = ceil(values, FilterReader.after(name, 1));
          return (slot, doc) -> keys[slot] = values.advanceExact(doc) ? key(values, first, end, name.length + 1) : null;
        });
    return keys;
  }

  /**
   * How many of some documents have each value of a field: the values in byte order as {@code values}, which is empty.
   *
   * @param docids no docid twice
   */
  int[] counts(int[] docids, String field, Lookup lookup, List<BytesRef> values) throws IOException {
    BytesRef name = new BytesRef(field.getBytes(StandardCharsets.UTF_8));
    check(name);
    TreeMap<BytesRef, Integer> counts = new TreeMap<>();
    List<Runnable> sums = new ArrayList<>();
    lookup.inDocOrder(
        docids,
        leaf -> {
          SortedSetDocValues ords = DocValues.getSortedSet(leaf.reader(), IndexFields.METADATA);
          long first = ceil(ords, FilterReader.after(name, 0));
          int[] own = new int[Math.toIntExact(ceil(ords, FilterReader.after(name, 1)) - first)];
          sums.add(() -> add(counts, ords, first, own, name.length + 1));
          return (slot, doc) -> count(ords, doc, first, own);
        });
    sums.forEach(Runnable::run);
    values.addAll(counts.keySet());
    return counts.values().stream().mapToInt(Integer::intValue).toArray();
  }

  private static void count(SortedSetDocValues ords, int doc, long first, int[] counts) throws IOException {
    if (counts.length > 0 && ords.advanceExact(doc)) {
      for (int i = ords.docValueCount(); i > 0; i--) {
        long place = ords.nextOrd() - first;
        if (0 <= place && place < counts.length) {
          counts[(int) place]++;
        }
      }
    }
  }

  private static void add(
      Map<BytesRef, Integer> all, SortedSetDocValues ords, long first, int[] counts, int prefix) {
    try {
      for (int i = 0; i < counts.length; i++) {
        if (counts[i] > 0) {
          BytesRef term = BytesRef.deepCopyOf(ords.lookupOrd(first + i));
          all.merge(
              new BytesRef(term.bytes, term.offset + prefix, term.length - prefix), counts[i], Integer::sum);
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
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
