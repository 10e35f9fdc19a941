// What gave a score, drawn to scale: words of the question, or channels.

import { byWord, sumOfShares } from "./words.js";
import { fixed, folded, h, number, percent, scored, shownTerm, signed, table } from "./dom.js";

const COLOURS = 8;
const FROM = 0.05; // of the strongest word: less has no colour of its own
const SPREAD = 0.2; // of its mean: a word that gives all hits about the same tells nothing of them
const ENOUGH = 5; // hits, to say so
const STRONG = 0.75; // of the strongest word: this much always has a colour

/** The colours of a question's words, the strongest first: {word: "t1"}; t0 for what tells little. */
export function coloursOf(hits) {
  const shares = new Map();
  for (const hit of hits) for (const { term, share } of hit.words) shares.set(term, [...(shares.get(term) ?? []), share]);
  const sum = (own) => own.reduce((all, share) => all + share, 0);
  const order = [...shares].filter(([, own]) => sum(own) > 0).sort((a, b) => sum(b[1]) - sum(a[1]));
  const most = order.length ? sum(order[0][1]) : 0;
  const flat = (own) => {
    const mean = sum(own) / hits.length;
    const spread = Math.sqrt((sum(own.map((share) => (share - mean) ** 2)) + (hits.length - own.length) * mean ** 2) / hits.length);
    return hits.length >= ENOUGH && sum(own) < STRONG * most && spread < SPREAD * mean;
  };
  const coloured = order.filter(([, own]) => sum(own) >= FROM * most && !flat(own)).slice(0, COLOURS).map(([term]) => term);
  const rest = order.map(([term]) => term).filter((term) => !coloured.includes(term));
  return new Map([...coloured.map((term, i) => [term, `t${i + 1}`]), ...rest.map((term) => [term, "t0"])]);
}

/** The words of the question, each a button that lets only its own colour stand out. */
export function legend(colours, root) {
  const chosen = (button) => {
    const pressed = button.getAttribute("aria-pressed") === "true";
    for (const other of button.parentNode.children) other.setAttribute("aria-pressed", "false");
    if (pressed) delete root.dataset.spot;
    else {
      root.dataset.spot = button.dataset.colour;
      button.setAttribute("aria-pressed", "true");
    }
  };
  const strong = [...colours].filter(([, colour]) => colour !== "t0");
  const others = [...colours].filter(([, colour]) => colour === "t0").map(([term]) => shownTerm(term));
  return h("div", { class: "legend" },
    h("div", { class: "words", role: "group", "aria-label": "Words of the question: show where one counts" },
      strong.map(([term, colour]) => h("button", {
        type: "button", class: `word ${colour}`, "aria-pressed": String(root.dataset.spot === colour), "data-colour": colour,
        onclick: (event) => chosen(event.currentTarget),
      }, h("span", { class: "swatch" }), shownTerm(term)))),
    others.length > 0 && h("span", { class: "word t0" }, h("span", { class: "swatch" }), `${others.join(", ")}: about the same in all, or little`));
}

/** Which term a marked word shows: the one that it is, or else the strongest that it contains. */
export function termOf(word, terms) {
  const letters = folded(word);
  const inside = terms.filter(({ term, share }) => share > 0 && letters.includes(folded(term.replace(/^##/, ""))));
  const own = inside.filter(({ term }) => folded(term) === letters);
  return (own.length ? own : inside).sort((a, b) => b.share - a.share)[0]?.term;
}

/** A text with its marks, `[start, end, share]` in characters (not in JavaScript's units); a share may be null. */
export function marked(text, marks, terms, colours) {
  const characters = Array.from(text);
  const piece = (start, end) => characters.slice(start, end).join("");
  const most = Math.max(...marks.map(([, , share]) => share), Number.MIN_VALUE);
  const total = sumOfShares(terms);
  const byShare = (share) => terms.find((term) => Math.abs(term.share / total - share) < 1e-3)?.term; // in another script
  const children = [];
  let at = 0;
  for (const [start, end, share] of marks) {
    const word = piece(start, end);
    const colour = colours.get(termOf(word, terms) ?? byShare(share)) ?? "t0";
    children.push(piece(at, start));
    at = end;
    if (colour === "t0" && terms.length > 0) {
      children.push(word); // marked everywhere, it would tell nothing
      continue;
    }
    const title = share === null ? null : `${percent(share)} of the score`;
    children.push(h("mark", { class: colour, css: { "--s": ((share ?? most) / most).toFixed(3) }, title }, word));
  }
  return [...children, piece(at)];
}

/** The words' parts of a score by impacts, one beside the other; `scale` is the score of the longest bar. */
export function termBar(terms, colours, scale, { thin = false } = {}) {
  const shares = new Map(terms.map(({ term, share }) => [term, share]));
  const score = sumOfShares(terms);
  const parts = [...colours].filter(([term]) => shares.get(term) > 0);
  const said = parts.map(([term]) => `${shownTerm(term)} ${number(shares.get(term))}`).join(", ");
  return h("div", { class: thin ? "bar thin" : "bar", role: "img", "aria-label": `${number(score)} = ${said}` },
    parts.map(([term, colour]) => h("span", {
      class: `seg ${colour}`, css: { width: `${(100 * shares.get(term)) / scale}%` },
      title: `${shownTerm(term)}: ${number(shares.get(term))}, ${percent(shares.get(term) / score)} of ${number(score)}`,
    }, !thin && h("span", {}, shownTerm(term)))));
}

/** A score of a channel alone: one bar. */
export const plainBar = (score, scale, way) =>
  h("div", { class: "bar", role: "img", "aria-label": `score ${scored(score, way)}` },
    h("span", { class: `seg c-${way}`, css: { width: `${Math.max(0, (100 * score) / scale)}%` } }));

/** The ends of what channels add, over all hits: zero lies between them. */
export function rangeOf(hits) {
  const added = hits.flatMap((hit) => Object.values(hit.channels ?? {}).map((own) => own.contribution));
  return { low: Math.min(0, ...added), high: Math.max(0, ...added) };
}

/** What each channel added to a fused score, left or right of the line of zero; below, the words' bar and sum. */
export function channelBars(hit, { low, high }, words, sum) {
  const span = high - low || 1;
  const at = (x) => `${(100 * (x - low)) / span}%`;
  const rows = Object.entries(hit.channels).map(([name, own]) => h("div", {},
    h("dt", {}, name),
    h("dd", { class: own.rank ? "place" : "place none" }, own.rank ? `#${own.rank}` : "–"),
    h("dd", { class: "track", "aria-hidden": "true", css: { "--zero": at(0) } },
      h("span", {
        class: `seg c-${name}`,
        css: { left: at(Math.min(0, own.contribution)), width: `${(100 * Math.abs(own.contribution)) / span}%` },
      })),
    h("dd", { class: "n" }, signed(own.contribution))));
  return h("dl", { class: "channels" }, rows,
    words && h("div", {}, h("dt", {}, "words"), h("dd", { class: "place" }), h("dd", {}, words), h("dd", { class: "n place" }, number(sum))));
}

/** The row of a word of several terms; its first cell opens and shows them. */
function opening(word, terms, sum) {
  const share = sumOfShares(terms);
  const parts = terms.map(({ term, count, impact, share: part }) => h("li", {}, `${shownTerm(term)}: ${number(count)} × ${number(impact)} = ${number(part)}`));
  return [h("details", {}, h("summary", {}, shownTerm(word)), h("ul", {}, parts)), "", "", number(share), percent(sum ? share / sum : 0)];
}

/** All of it as tables. */
export function numbers(hit, weights) {
  const tables = [];
  if (hit.channels) {
    const rows = Object.entries(hit.channels).map(([name, own]) =>
      [name, own.rank ? number(own.rank) : "–", own.rank ? scored(own.score, name) : "–", String(weights.get(name) ?? 1), signed(own.contribution)]);
    tables.push(table(`Score ${fixed(hit.score)}: what the channels add`, ["Channel", "Rank", "Its score", "Weight", "Adds"], rows));
  }
  if (hit.terms?.length) {
    const sum = sumOfShares(hit.terms);
    const cells = ({ term, count, impact, share }) =>
      [shownTerm(term), number(count), number(impact), number(share), percent(sum ? share / sum : 0)];
    const rows = byWord(hit.terms).map(([word, own]) => (own.length > 1 ? opening(word, own, sum) : cells({ ...own[0], term: word })));
    tables.push(table(`Impact ${number(sum)}: what the words add`, ["Word", "Count", "Impact", "Adds", "Share"], rows));
  }
  return tables;
}
