package sparta.lucene.scoring;

import java.io.IOException;
import java.util.List;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.CollectionStatistics;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.TermStatistics;
import sparta.lucene.util.IndexFields;

/**
 * Searches texts with the statistics of the live documents alone. Lucene's count deleted documents until a merge.
 *
 * <p>A search computes the corrections when it first needs them. Readers of the same segment share them.
 */
public final class LiveSearcher extends IndexSearcher {
  private final List<DeletedTexts> deletions;
  private CollectionStatistics texts;

  public LiveSearcher(DirectoryReader reader) {
    super(reader);
    deletions = reader.leaves().stream().filter(leaf -> leaf.reader().hasDeletions()).map(DeletedTexts::new).toList();
  }

  @Override
  public TermStatistics termStatistics(Term term, int docFreq, long totalTermFreq) throws IOException {
    if (deletions.isEmpty() || !term.field().equals(IndexFields.TEXT)) {
      return super.termStatistics(term, docFreq, totalTermFreq);
    }
    int deleted = 0;
    for (DeletedTexts segment : deletions) {
      deleted += segment.docFreq(term.bytes());
    }
    // A statistic must be positive. The score of a term without live documents is never used.
    int live = Math.max(1, docFreq - deleted);
    return super.termStatistics(term, live, Math.max(live, totalTermFreq - deleted));
  }

  @Override
  public CollectionStatistics collectionStatistics(String field) throws IOException {
    return deletions.isEmpty() || !field.equals(IndexFields.TEXT) ? super.collectionStatistics(field) : liveTexts();
  }

  private synchronized CollectionStatistics liveTexts() throws IOException {
    if (texts == null) {
      texts = withoutDeleted(super.collectionStatistics(IndexFields.TEXT));
    }
    return texts;
  }

  private CollectionStatistics withoutDeleted(CollectionStatistics all) throws IOException {
    if (all == null) {
      return null;
    }
    long docs = all.docCount();
    long tokens = all.sumTotalTermFreq();
    for (DeletedTexts segment : deletions) {
      docs -= segment.docs();
      tokens -= segment.tokens();
    }
    return docs <= 0
        ? all // no live document has a text: no score is used
        : new CollectionStatistics(all.field(), all.maxDoc(), docs, tokens, Math.min(all.sumDocFreq(), tokens));
  }
}
