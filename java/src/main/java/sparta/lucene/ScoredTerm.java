package sparta.lucene;

/** A term of a query in one segment. */
record ScoredTerm(TermRanges postings, float weight) {
  /** The most that the term can add to a score. */
  float bound() {
    return weight * postings.bound();
  }

  /** The most that it can add in one range; short terms have no ranges. */
  float bound(int range) {
    return weight * Ranges.bound(postings.word(range));
  }
}
