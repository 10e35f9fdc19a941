// One passage: its text, its metadata, the terms that it is found by (SPARTA, Table 6), and its score for a question.

import { coloursOf, legend, marked, numbers, termBar } from "./bars.js";
import { explain, passage, terms } from "./api.js";
import { failure } from "./failure.js";
import { putTogether } from "./words.js";
import { folded, h, number, shownTerm } from "./dom.js";

const FIRST = 20; // terms with their bars, before all are wanted
const ALL = 100;
const ADDED = 12; // of those that the text does not have, named

/** Show a passage; `back` is the link to the ranking. What an index lacks (impacts, say) is said in its place. */
export async function showPassage(place, state, signal, back, follow) {
  const parts = [passage(state.id, signal), terms(state.id, ALL, signal), state.q ? explain(state.q, state.id, signal) : null];
  const [found, strongest, why] = await Promise.allSettled(parts);
  for (const one of [found, strongest, why]) {
    if (one.status === "rejected" && (one.reason.name === "AbortError" || one.reason.status === 401)) throw one.reason;
  }
  if (found.status === "rejected") throw found.reason;
  const { id, title, text, metadata } = found.value;
  const reason = why.value ?? { terms: [] };
  delete place.dataset.spot;
  putTogether([reason]);
  const colours = coloursOf([reason]);
  const known = folded(`${title ?? ""} ${text ?? ""}`);
  place.replaceChildren(
    h("p", { class: "back" }, h("a", { href: back, onclick: follow }, state.q ? `← All passages for “${state.q}”` : "← To the question")),
    h("article", { class: "passage" },
      h("header", {}, h("h2", { id: "passage-title", tabindex: "-1", dir: "auto" }, title || id), h("p", { class: "id" }, id)),
      h("div", { class: "two" },
        h("div", { class: "reading" },
          state.q && h("section", { "aria-label": "Its score for the question" }, whySection(why, state.q, colours, place)),
          h("p", { class: "text", dir: "auto" }, marked(text ?? "", reason.marks ?? [], reason.words, colours)),
          properties(metadata)),
        h("section", { class: "strongest", "aria-labelledby": "strongest" },
          h("h3", { id: "strongest" }, "What it is found by"),
          strongest.status === "rejected" ? failure(strongest.reason) : strongestTerms(strongest.value.terms, known)))));
  return title || id;
}

function whySection(why, question, colours, root) {
  if (why.status === "rejected") return failure(why.reason);
  const { rank, score, terms: found, words } = why.value;
  return [
    h("h3", {}, "Its score for ", h("q", { dir: "auto" }, question)),
    h("p", { class: "verdict" }, h("strong", {}, number(score)), rank ? ` by impacts, rank ${number(rank)}` : ": none of these words has an impact here"),
    score > 0 && legend(colours, root),
    score > 0 && termBar(words, colours, score),
    h("details", { class: "numbers" }, h("summary", {}, "Numbers"), numbers({ terms: found }, new Map())),
  ];
}

/** The strongest terms, a bar for each; those that stand nowhere in title and text were added by the model. */
function strongestTerms(found, known) {
  const most = Math.max(...found.map(({ impact }) => impact), 1);
  const stands = ({ term }) => known.includes(folded(term.replace(/^##/, "")));
  const row = (one) => h("tr", { class: stands(one) ? null : "added" },
    h("th", { scope: "row" }, shownTerm(one.term), !stands(one) && h("span", { class: "hidden" }, " (not in the text)")),
    h("td", { class: "n" }, number(one.impact)),
    h("td", { class: "wide", "aria-hidden": "true" }, h("span", { class: "seg", css: { width: `${(100 * one.impact) / most}%` } })));
  const added = found.filter((one) => !stands(one)).slice(0, ADDED);
  const body = h("tbody", {}, found.slice(0, FIRST).map(row));
  const more = h("button", { type: "button", class: "plain", onclick: () => {
    const others = found.slice(FIRST).map(row);
    body.append(...others);
    others[0].tabIndex = -1;
    others[0].focus();
    more.remove();
  } }, `All of the ${number(found.length)} strongest`);
  return [
    h("p", { class: "quiet" }, "Its strongest terms and their impacts."),
    added.length > 0 && h("p", { class: "quiet" }, h("span", { class: "sample" }), " Not in the text, added by the model: ",
      added.map((one, i) => [i ? ", " : "", h("span", { class: "term" }, shownTerm(one.term)), ` ${number(one.impact)}`]), "."),
    h("table", { class: "terms" },
      h("caption", { class: "hidden" }, "Strongest terms of the passage"),
      h("thead", { class: "hidden" }, h("tr", {}, h("th", { scope: "col" }, "Term"), h("th", { scope: "col" }, "Impact"), h("td"))),
      body),
    found.length > FIRST && more,
  ];
}

function properties(metadata) {
  const fields = Object.entries(metadata ?? {});
  if (fields.length === 0) return null;
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return h("section", { "aria-labelledby": "metadata" }, h("h3", { id: "metadata" }, "Metadata"),
    h("dl", { class: "metadata" }, fields.map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, shown(value))))));
}
