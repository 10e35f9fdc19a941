package sparta.lucene.codec;

import org.apache.lucene.codecs.BlockTermState;
import org.apache.lucene.index.TermState;

/** Where a term's postings lie: of a short term their start, of any other its directory. */
final class ImpactTermState extends BlockTermState {
  long pointer;

  @Override
  public ImpactTermState clone() {
    ImpactTermState copy = new ImpactTermState();
    copy.copyFrom(this);
    return copy;
  }

  @Override
  public void copyFrom(TermState other) {
    super.copyFrom(other);
    pointer = ((ImpactTermState) other).pointer;
  }

  @Override
  public String toString() {
    return super.toString() + " pointer=" + pointer;
  }
}
