// The answer on top: what a reader finds in the best passages, with where it stands.

import { h } from "./dom.js";

const AROUND = 110; // characters of the passage to each side of the answer, and to the end of a word
const SURE = 0.3; // below, an answer is not written large

export const reading = () => h("section", { class: "answer waiting", "aria-hidden": "true" }, h("p", { class: "quiet" }, "Reading the best passages …"));

/** The best answer in large letters, its sentence, and the other candidates; null where there is none. */
export function answerView([best, ...others], look) {
  if (!best) return null;
  const letters = Array.from(best.text);
  const cut = (start, end) => letters.slice(Math.max(0, start), Math.max(0, end)).join("");
  const { start, end } = best;
  const before = cut(start - AROUND, start), after = cut(end, end + AROUND);
  const shortBefore = start > AROUND ? `… ${before.replace(/^\S{0,20}\s+/u, "")}` : before;
  const shortAfter = letters.length > end + AROUND ? `${after.replace(/\s+\S{0,20}$/u, "")} …` : after;
  return h("section", { class: best.score < SURE ? "answer unsure" : "answer", "aria-labelledby": "answer" },
    h("h2", { id: "answer", dir: "auto" }, best.answer),
    h("p", { class: "sure" }, meter(best.score), ` score ${best.score.toFixed(2)}`),
    h("p", { class: "snippet", dir: "auto" },
      shortBefore, h("strong", {}, cut(start, end)), shortAfter),
    h("p", { class: "quiet" }, "From ", h("a", { href: look.link(best.passage_id), onclick: look.follow, dir: "auto" }, best.title || best.passage_id),
      others.length > 0 && [" · or else ", others.map((one, i) => [i ? ", " : "", h("bdi", {}, one.answer), ` (${one.score.toFixed(2)})`])]));
}

const meter = (score) => h("span", {
  class: "meter", role: "meter", "aria-label": "Score", "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": score.toFixed(2),
}, h("span", { css: { width: `${100 * score}%` } }));

export const noAnswer = () => h("section", { class: "answer none" }, h("p", { class: "quiet" }, "The reader finds no answer in the best passages."));
