// The terms of a question, put together to its words: wordpieces, and terms that are whole words.

/** Terms by the word that each is from, in the terms' order. */
export function byWord(terms) {
  const words = new Map();
  for (const one of terms) words.set(one.word ?? one.term, [...(words.get(one.word ?? one.term) ?? []), one]);
  return [...words];
}

/** The sum of the shares of terms, or of words. */
export const sumOfShares = (terms) => terms.reduce((sum, { share }) => sum + share, 0);

/** Give hits, or explanations, `words` beside their `terms`: what each word of the question adds. */
export function putTogether(hits) {
  for (const hit of hits) {
    hit.words = byWord(hit.terms ?? []).map(([word, terms]) => ({ term: word, share: sumOfShares(terms) }));
  }
}
