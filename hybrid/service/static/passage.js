// One passage: its text, its metadata, the terms that it is found by (SPARTA, Table 6), and its score for a question.

import { coloursOf, legend, marked, numbers, termBar } from "./bars.js";
import { ServiceError, explain, passage, terms } from "./api.js";
import { failure } from "./failure.js";
import { folded, h, number, plural, shownTerm } from "./dom.js";

const FIRST = 20;
const MORE = 100;

/** Show a passage; `back` is the link to the ranking. What an index lacks (impacts, say) is said in its place. */
export async function showPassage(place, state, signal, back, follow) {
  const parts = [passage(state.id, signal), own(state.id, FIRST, signal), state.q ? explain(state.q, state.id, signal) : null];
  const [found, strongest, why] = await Promise.allSettled(parts);
  for (const one of [found, strongest, why]) {
    if (one.status === "rejected" && (one.reason.name === "AbortError" || one.reason.status === 401)) throw one.reason;
  }
  if (found.status === "rejected") throw found.reason;
  const { id, title, text, metadata } = found.value;
  const reason = why.value ?? { terms: [] };
  const colours = coloursOf([reason]);
  const known = folded(`${title ?? ""} ${text ?? ""}`);
  place.replaceChildren(
    h("p", { class: "back" }, h("a", { href: back, onclick: follow }, state.q ? `← All passages for “${state.q}”` : "← To the question")),
    h("article", { class: "passage" },
      h("header", {}, h("h2", { id: "passage-title", tabindex: "-1", dir: "auto" }, title || id), h("p", { class: "id" }, id)),
      h("div", { class: "two" },
        h("div", { class: "reading" },
          state.q && h("section", { "aria-label": "Its score for the question" }, whySection(why, state.q, colours, place)),
          h("p", { class: "text", dir: "auto" }, marked(text ?? "", reason.marks ?? [], reason.terms, colours)),
          properties(metadata)),
        h("section", { class: "strongest", "aria-labelledby": "strongest" },
          h("h3", { id: "strongest" }, "What it is found by"),
          strongest.status === "rejected" ? failure(strongest.reason) : list(strongest.value.terms, known, id, signal)))));
  return title || id;
}

const own = (id, n, signal) => terms(id, n, signal);

function whySection(why, question, colours, root) {
  if (why.status === "rejected") return failure(why.reason);
  const { rank, score, terms: found } = why.value;
  return [
    h("h3", {}, "Its score for ", h("q", { dir: "auto" }, question)),
    h("p", { class: "verdict" }, h("strong", {}, number(score)), rank ? ` by impacts, rank ${number(rank)}` : ": none of these words has an impact here"),
    score > 0 && legend(colours, root),
    score > 0 && termBar(found, colours, score),
    h("details", { class: "numbers" }, h("summary", {}, "Numbers"), numbers({ terms: found }, new Map())),
  ];
}

/** The strongest terms, a bar for each; those that stand nowhere in title and text were added by the model. */
function list(found, known, id, signal) {
  const most = Math.max(...found.map(({ impact }) => impact), 1);
  const stands = ({ term }) => known.includes(folded(term.replace(/^##/, "")));
  const added = found.filter((one) => !stands(one)).length;
  const rows = found.map((one) => h("tr", { class: stands(one) ? null : "added" },
    h("th", { scope: "row" }, shownTerm(one.term), !stands(one) && h("span", { class: "hidden" }, " (not in the text)")),
    h("td", { class: "n" }, number(one.impact)),
    h("td", { class: "wide", "aria-hidden": "true" }, h("span", { class: "seg", css: { width: `${(100 * one.impact) / most}%` } }))));
  const box = h("div", {},
    h("p", { class: "quiet" }, `${plural(found.length, "strongest term")} with their impacts. `,
      added > 0 && [h("span", { class: "sample" }), ` Hollow: ${added} that the text does not have; the model added them.`]),
    h("table", { class: "terms" },
      h("caption", { class: "hidden" }, "Strongest terms of the passage"),
      h("thead", { class: "hidden" }, h("tr", {}, ["Term", "Impact", ""].map((head, i) => (i < 2 ? h("th", { scope: "col" }, head) : h("td"))))),
      h("tbody", {}, rows)));
  const more = async (event) => {
    event.currentTarget.disabled = true;
    try {
      const all = await terms(id, MORE, signal);
      box.replaceWith(list(all.terms, known, id, signal));
    } catch (error) {
      if (error instanceof ServiceError) box.append(failure(error));
    }
  };
  if (found.length === FIRST) box.append(h("button", { type: "button", class: "plain", onclick: more }, `${MORE} terms`));
  return box;
}

function properties(metadata) {
  const fields = Object.entries(metadata ?? {});
  if (fields.length === 0) return null;
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return h("section", { "aria-labelledby": "metadata" }, h("h3", { id: "metadata" }, "Metadata"),
    h("dl", { class: "metadata" }, fields.map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, shown(value))))));
}
