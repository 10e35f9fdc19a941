package sparta.lucene.scoring;

import sparta.lucene.codec.RangeLayout;
import sparta.lucene.codec.TermRanges;

/** A term of a query in one segment. */
record ScoredTerm(TermRanges postings, int weight) {
  /** The most that the term can add to a score. */
  long bound() {
    return (long) weight * postings.bound();
  }

  /** The most that it can add in one range; short terms have no ranges. */
  long bound(int range) {
    return (long) weight * RangeLayout.bound(postings.word(range));
  }
}
