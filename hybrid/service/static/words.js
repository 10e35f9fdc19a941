// Wordpieces of a question, put together to its words again.

import { folded } from "./dom.js";

/** {piece: word} for the words of a question that have several pieces, none of which another word has too. */
function wholes(question, terms) {
  const cuts = folded(question).split(/[^\p{L}\p{N}]+/u).filter(Boolean).map((word) => [word, cut(word, terms)]);
  const users = new Map();
  for (const [word, pieces] of cuts) for (const piece of pieces) users.set(piece, (users.get(piece) ?? new Set()).add(word));
  const whole = cuts.filter(([, pieces]) => pieces.length > 1 && pieces.every((piece) => users.get(piece).size === 1));
  return new Map(whole.flatMap(([word, pieces]) => pieces.map((piece) => [piece, word])));
}

/** The pieces of a word, each the longest that there is; none where they do not make the word. */
function cut(word, terms) {
  const pieces = [];
  for (let at = 0; at < word.length; ) {
    let end = word.length;
    const piece = () => (at ? "##" : "") + word.slice(at, end);
    while (end > at && !terms.has(piece())) end -= 1;
    if (end === at) return [];
    pieces.push(piece());
    at = end;
  }
  return pieces;
}

/** Give hits, or explanations, `words` beside their `terms`: what each word of the question adds. */
export function putTogether(question, hits) {
  const found = hits.map((hit) => hit.terms ?? []);
  const whole = wholes(question, new Set(found.flat().map(({ term }) => term)));
  hits.forEach((hit, i) => {
    const shares = new Map();
    for (const { term, share } of found[i]) {
      const word = whole.get(term) ?? term;
      shares.set(word, (shares.get(word) ?? 0) + share);
    }
    hit.words = [...shares].map(([term, share]) => ({ term, share }));
  });
}
