/**
 * Learned sparse impacts in Lucene.
 *
 * <p>{@link sparta.lucene.ImpactWriter} and {@link sparta.lucene.ImpactSearcher} are the border to Python: whole
 * batches cross it as packed {@code byte[]}, all numbers little-endian, all strings UTF-8. Nothing else here is
 * public but what Lucene itself has to see.
 */
package sparta.lucene;
