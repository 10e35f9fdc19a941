// A ranking: one card a hit, and the movement of the cards when it changes.

import { channelBars, marked, numbers, plainBar, rangeOf, termBar } from "./bars.js";
import { calm, h, scored } from "./dom.js";
import { sumOfShares } from "./words.js";

const MOVE = { duration: 320, easing: "cubic-bezier(.2,.7,.2,1)" };

/** Which hits show their numbers: it stays so while the ranking changes. */
const opened = new Set();

/**
 * A list of hits. `look` has: colours, weights (by channel), way, link (id → address), follow (a click on a title),
 * before ({id: rank}, to show what moved), note (hit → element below its title), marker (hit → whether it stands out).
 */
export function ranking(hits, look) {
  const range = rangeOf(hits);
  const scale = Math.max(...hits.map((hit) => hit.score), 0);
  const impacts = Math.max(...hits.map((hit) => sumOfShares(hit.words)), 1);
  return h("ol", { class: "hits", start: hits[0]?.rank ?? 1 },
    hits.map((hit) => card(hit, { ...look, range, scale, impacts })));
}

function card(hit, look) {
  const terms = hit.words;
  const title = hit.title || hit.id;
  return h("li", { class: look.marker?.(hit) ? "hit alone" : "hit", "data-id": hit.id },
    h("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank), look.before && moved(look.before.get(hit.id), hit.rank)),
    h("article", { "aria-label": `${hit.rank}: ${title}` },
      h("header", {},
        h("h3", {}, h("a", { href: look.link(hit.id), onclick: look.follow, dir: "auto" }, title)),
        h("span", { class: "score", title: "score" }, scored(hit.score, look.way))),
      h("div", { class: "meta" }, hit.title && h("p", { class: "id" }, hit.id), look.note?.(hit)),
      h("p", { class: "snippet", dir: "auto" }, marked(hit.snippet ?? "", hit.marks ?? [], terms, look.colours)),
      bars(hit, terms, look),
      more(hit, look)));
}

function moved(from, to) {
  if (from === undefined) return h("span", { class: "moved up" }, "new");
  return from !== to && h("span", { class: from > to ? "moved up" : "moved" }, `${from > to ? "↑" : "↓"}${Math.abs(from - to)}`);
}

/** Channels of a fused hit and, thin, its words; words of a hit by impacts; else its score alone. */
function bars(hit, terms, look) {
  const sum = sumOfShares(terms);
  const words = (thin) => termBar(terms, look.colours, look.impacts, { thin });
  if (hit.channels) return channelBars(hit, look.range, sum > 0 && words(true), sum);
  if (look.way === "impact" && sum > 0) return words(false);
  return [plainBar(hit.score, look.scale, look.way), sum > 0 && words(true)];
}

/** The numbers as tables, made when they are first wanted. */
function more(hit, look) {
  if (!hit.channels && !hit.terms?.length) return null;
  const details = h("details", { class: "numbers" }, h("summary", {}, "Numbers", h("span", { class: "hidden" }, ` of ${hit.title || hit.id}`)));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(...numbers(hit, look.weights));
    if (details.open) opened.add(hit.id);
    else opened.delete(hit.id);
  });
  if (opened.has(hit.id)) details.open = true;
  return details;
}

/** Put other hits where some are, each gliding from its old place to its new one. */
export function replace(place, ...children) {
  const before = new Map([...place.querySelectorAll("li[data-id]")].map((li) => [key(li), li.getBoundingClientRect().top]));
  place.replaceChildren(...children);
  if (calm() || before.size === 0) return;
  for (const li of place.querySelectorAll("li[data-id]")) {
    const old = before.get(key(li));
    const way = old === undefined ? null : old - li.getBoundingClientRect().top;
    if (way === null) li.animate([{ opacity: 0 }, { opacity: 1 }], MOVE);
    else if (Math.abs(way) > 1) li.animate([{ transform: `translateY(${way}px)` }, { transform: "none" }], MOVE);
  }
}

const key = (li) => `${li.closest("[data-side]")?.dataset.side ?? ""}/${li.dataset.id}`;
