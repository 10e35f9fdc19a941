package sparta.lucene.filtering;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermInSetQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.TermRangeQuery;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefBuilder;
import sparta.lucene.indexing.MetadataFields;
import sparta.lucene.util.IndexFields;
import sparta.lucene.util.StringTable;

/**
 * Reads a filter and finds the documents that it keeps.
 *
 * <p>A filter is a string table of conditions that must all hold, each in front of its parts: {@code in n term…},
 * {@code numbers field low high} (both included), {@code texts low high} (terms from the first to before the second),
 * {@code exists field}, {@code not condition}, {@code any n condition…}, {@code all n condition…}.
 */
public final class FilterReader {
  /** So many terms are read sooner one by one than by Lucene's query for sets. */
  private static final int FEW = 64;

  private final StringTable parts;
  private final IndexSearcher searcher;
  private final List<BytesRef> fields = new ArrayList<>();
  private boolean keepsMissing;
  private int at;

  public FilterReader(byte[] filter, IndexSearcher searcher) {
    parts = StringTable.unpack(filter, "filter");
    this.searcher = searcher;
  }

  /** The documents that all conditions keep. */
  public KeptDocs kept() throws IOException {
    List<Query> conditions = new ArrayList<>();
    while (at < parts.size()) {
      conditions.add(condition());
    }
    return all(conditions);
  }

  /** The fields that the conditions name; complete after {@link #kept}. */
  public List<BytesRef> fields() {
    return fields;
  }

  /** Whether the filter can keep documents although no document has one of its fields. */
  public boolean keepsMissing() {
    return keepsMissing;
  }

  private Query condition() throws IOException {
    String kind = parts.string(at++);
    return switch (kind) {
      case "in" -> in();
      case "numbers" -> numbers();
      case "texts" -> {
        BytesRef low = parts.bytes(at++);
        fields.add(MetadataFields.name(low));
        yield new TermRangeQuery(IndexFields.METADATA, low, parts.bytes(at++), true, false);
      }
      case "exists" -> {
        BytesRef field = parts.bytes(at++);
        fields.add(field);
        yield new TermRangeQuery(IndexFields.METADATA, after(field, 0), after(field, 1), true, false);
      }
      case "not" -> {
        keepsMissing = true;
        yield KeptDocs.not(condition(), searcher);
      }
      case "any" -> {
        keepsMissing = true;
        yield KeptDocs.any(conditions(), searcher);
      }
      case "all" -> all(conditions());
      default -> throw new IllegalArgumentException("filter: an unknown condition, " + kind);
    };
  }

  private List<Query> conditions() throws IOException {
    List<Query> conditions = new ArrayList<>();
    for (int n = Integer.parseInt(parts.string(at++)); n > 0; n--) {
      conditions.add(condition());
    }
    return conditions;
  }

  private KeptDocs all(List<Query> conditions) throws IOException {
    BooleanQuery.Builder all = new BooleanQuery.Builder();
    int leaves = 0;
    for (Query condition : conditions) {
      if ((leaves += FEW) >= IndexSearcher.getMaxClauseCount()) { // Lucene counts all conditions, and their terms
        all = new BooleanQuery.Builder().add(KeptDocs.of(all.build(), searcher), BooleanClause.Occur.FILTER);
        leaves = 2 * FEW;
      }
      all.add(condition, BooleanClause.Occur.FILTER);
    }
    return KeptDocs.of(all.build(), searcher);
  }

  private Query in() {
    List<BytesRef> terms = new ArrayList<>();
    for (int n = Integer.parseInt(parts.string(at++)); n > 0; n--) {
      terms.add(parts.bytes(at++));
    }
    fields.add(MetadataFields.name(terms.getFirst()));
    if (terms.size() > FEW) {
      return new TermInSetQuery(IndexFields.METADATA, terms);
    }
    BooleanQuery.Builder some = new BooleanQuery.Builder();
    for (BytesRef term : terms) {
      some.add(new TermQuery(new Term(IndexFields.METADATA, term)), BooleanClause.Occur.SHOULD);
    }
    return some.build();
  }

  private Query numbers() {
    BytesRef field = parts.bytes(at++);
    fields.add(field);
    long low = MetadataFields.sortable(number(parts.string(at++)));
    long high = MetadataFields.sortable(number(parts.string(at++)));
    return new NumberRange(IndexFields.NUMBERS, MetadataFields.hash(field), low, high);
  }

  private static double number(String text) {
    return Double.parseDouble(text.replace("inf", "Infinity"));
  }

  /** A field's name and one byte more: 0 for the first term of the field, 1 for the first term after the field. */
  public static BytesRef after(BytesRef name, int last) {
    BytesRefBuilder term = new BytesRefBuilder();
    term.append(name);
    term.append((byte) last);
    return term.get();
  }
}
