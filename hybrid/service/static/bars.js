// What gave a score, drawn to scale: words of the question, or channels.

import { h, folded, number, percent, shownTerm, signed, table } from "./dom.js";

const COLOURS = 8;
const FROM = 0.05; // of the strongest word: less has no colour of its own

/** The colours of a question's words, the strongest first: {term: "t1"}, t0 for what gives little. */
export function coloursOf(hits) {
  const sums = new Map();
  for (const hit of hits) for (const { term, share } of hit.terms ?? []) sums.set(term, (sums.get(term) ?? 0) + share);
  const order = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]);
  const strong = order.filter(([, sum], i) => i < COLOURS && sum >= FROM * order[0][1]).length;
  return new Map(order.map(([term], i) => [term, i < strong ? `t${i + 1}` : "t0"]));
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
  delete root.dataset.spot;
  const strong = [...colours].filter(([, colour]) => colour !== "t0");
  const others = [...colours].filter(([, colour]) => colour === "t0").map(([term]) => shownTerm(term));
  return h("div", { class: "legend" },
    h("div", { class: "words", role: "group", "aria-label": "Words of the question: show where one counts" },
      strong.map(([term, colour]) => h("button", {
        type: "button", class: `word ${colour}`, "aria-pressed": "false", "data-colour": colour,
        onclick: (event) => chosen(event.currentTarget),
      }, h("span", { class: "swatch" }), shownTerm(term)))),
    others.length > 0 && h("span", { class: "word t0" }, h("span", { class: "swatch" }), others.join(" ")));
}

/** Which term a marked word shows: the one that it is, or else the strongest that it contains. */
export function termOf(word, terms) {
  const letters = folded(word);
  const inside = terms.filter(({ term, share }) => share > 0 && letters.includes(folded(term.replace(/^##/, ""))));
  const own = inside.filter(({ term }) => folded(term) === letters);
  return (own.length ? own : inside).sort((a, b) => b.share - a.share)[0]?.term;
}

/** A text with its marks, `[start, end, share]` in characters (not in JavaScript's units). */
export function marked(text, marks, terms, colours) {
  const characters = Array.from(text);
  const piece = (start, end) => characters.slice(start, end).join("");
  const most = Math.max(...marks.map(([, , share]) => share), Number.MIN_VALUE);
  const children = [];
  let at = 0;
  for (const [start, end, share] of marks) {
    const word = piece(start, end);
    const colour = colours.get(termOf(word, terms)) ?? "t0";
    children.push(piece(at, start));
    children.push(h("mark", { class: colour, css: { "--s": (share / most).toFixed(3) }, title: `${percent(share)} of the score` }, word));
    at = end;
  }
  return [...children, piece(at)];
}

/** The words' parts of a score by impacts, one beside the other; `scale` is the score of the longest bar. */
export function termBar(terms, colours, scale, { thin = false } = {}) {
  const shares = new Map(terms.map(({ term, share }) => [term, share]));
  const score = terms.reduce((sum, { share }) => sum + share, 0);
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
  h("div", { class: "bar", role: "img", "aria-label": `score ${number(score)}` },
    h("span", { class: `seg c-${way}`, css: { width: `${Math.max(0, (100 * score) / scale)}%` } }));

/** The ends of what channels add, over all hits: zero lies between them. */
export function rangeOf(hits) {
  const added = hits.flatMap((hit) => Object.values(hit.channels ?? {}).map((own) => own.contribution));
  return { low: Math.min(0, ...added), high: Math.max(0, ...added) };
}

/** What each channel added to a fused score, from the line of zero to the left or to the right. */
export function channelBars(hit, { low, high }) {
  const span = high - low || 1;
  const at = (x) => `${(100 * (x - low)) / span}%`;
  return h("dl", { class: "channels" }, Object.entries(hit.channels).map(([name, own]) => h("div", {},
    h("dt", {}, name),
    h("dd", { class: own.rank ? "place" : "place none" }, own.rank ? `#${own.rank}` : "–"),
    h("dd", { class: "track", "aria-hidden": "true", css: { "--zero": at(0) } },
      h("span", {
        class: `seg c-${name}`,
        css: { left: at(Math.min(0, own.contribution)), width: `${(100 * Math.abs(own.contribution)) / span}%` },
      })),
    h("dd", { class: "n" }, signed(own.contribution)))));
}

/** All of it as tables. */
export function numbers(hit, weights) {
  const tables = [];
  if (hit.channels) {
    const rows = Object.entries(hit.channels).map(([name, own]) =>
      [name, own.rank ?? "–", own.score ?? "–", weights.get(name) ?? 1, own.contribution]);
    tables.push(table(`Score ${number(hit.score)}: what the channels add`, ["Channel", "Rank", "Its score", "Weight", "Adds"], rows));
  }
  if (hit.terms?.length) {
    const sum = hit.terms.reduce((all, { share }) => all + share, 0);
    const rows = hit.terms.map(({ term, count, impact, share }) =>
      [shownTerm(term), count, impact, share, percent(sum ? share / sum : 0)]);
    tables.push(table(`Impact ${number(sum)}: what the words add`, ["Word", "Count", "Impact", "Adds", "Share"], rows));
  }
  return tables;
}
