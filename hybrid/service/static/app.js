// The page: an address becomes a state, a state is asked for and shown.

import * as api from "./api.js";
import { answerView, noAnswer, reading } from "./answer.js";
import { coloursOf, legend } from "./bars.js";
import { sideBySide, slopes } from "./compare.js";
import { controls } from "./controls.js";
import { $, h, number, plural } from "./dom.js";
import { failure, keyForm } from "./failure.js";
import { ranking, replace } from "./hits.js";
import { showPassage } from "./passage.js";
import { putTogether } from "./words.js";
import { channelsOf, fromAddress, named, request, toAddress } from "./state.js";

const TYPING = 250; // ms without a key pressed, until what was typed is asked
const READING = 600; // ms that a question stands, until it is read for an answer
const DEPTH = 50; // how deep the other ranking is looked through, side by side
const FUSED = 100; // how deep a fused ranking goes, to its candidates
const DEEPEST = 10_000; // and that of one channel, as far as the service allows

let info, state, panel;
let pendingSearch = new AbortController();
let answering = { body: null, controller: new AbortController() };
let colours = { q: null, of: new Map() };
let shownAddress = null;
let statusText = ""; // the text for screen readers
let sliding = null; // the promise that what is shown follows α
let ranksBefore = null; // the ranks when α began to move: {id: rank}
let typing = false; // whether the last entry of the history is a question that is being typed

async function start() {
  try {
    const found = await api.info();
    info = { fields: [], ...found };
  } catch (error) {
    refused(error, start);
    return;
  }
  panel = controls(info, (changes, how) => (how ? slide(changes, how === "settled") : go(changes)));
  $("controls").replaceChildren(panel.element);
  facts();
  state = fromAddress(location.search, info);
  $("q").value = state.q;
  if (!state.q && !state.id) $("q").focus();
  await show();
}

function facts() {
  $("facts").textContent = [info.index, plural(info.passages, "passage"), info.channels.join(", ")].join(" · ");
  versionIs(info.version);
}

const versionIs = ({ generation, commit }) => { $("version").textContent = `index version ${generation}.${commit}`; };

/** Change the state, its address, and what is shown. */
async function go(changes, { instead = false } = {}) {
  state = { ...state, ...changes };
  const address = toAddress(state, info);
  if (instead) history.replaceState(history.state, "", address);
  else {
    history.replaceState({ y: scrollY }, "");
    history.pushState(null, "", address);
  }
  await show();
}

/** While α is dragged: one request at a time, and after it the newest; `last` when the slider is let go. */
async function slide(changes, last) {
  state = { ...state, ...changes };
  ranksBefore ??= ranks();
  sliding ??= catchUp().finally(() => { sliding = null; });
  await sliding;
  if (!last) return;
  history.replaceState(history.state, "", address());
  $("status").textContent = statusText;
  ranksBefore = null;
}

/** Ask until what is shown is what was chosen, unless something else was asked meanwhile. */
async function catchUp() {
  while (shownAddress !== address()) if (!(await show({ quiet: true }))) return;
}

/** The ranks that are shown, of one ranking. */
function ranks() {
  const lists = document.querySelectorAll(".hits");
  return lists.length === 1 ? new Map([...lists[0].children].map((li, i) => [li.dataset.id, lists[0].start + i])) : null;
}

const address = (changes) => toAddress(state, info, changes);
const link = (id) => address({ id });

const opensElsewhere = (event) => event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0;

/** A click on a link of the page, unless it is to open elsewhere. */
function follow(event) {
  if (opensElsewhere(event)) return;
  event.preventDefault();
  const next = fromAddress(new URL(event.currentTarget.href).search, info);
  const left = state.id;
  typing = false;
  $("q").value = next.q;
  go(next).then(() => {
    scrollTo(0, 0);
    if (!state.id && !focusHit(left)) $(state.q ? "results" : "q").focus({ preventScroll: true });
  });
}

/** Go on where a passage was opened from; whether it is shown. */
function focusHit(id) {
  const link = id ? document.querySelector(`li[data-id="${CSS.escape(id)}"] h3 a`) : null;
  link?.focus();
  return Boolean(link);
}

/** Ask for what the state says and show it; false where something else was asked before the answer came. */
async function show({ quiet = false } = {}) {
  const newAddress = address();
  pendingSearch.abort();
  pendingSearch = new AbortController();
  const { signal } = pendingSearch;
  const results = $("results");
  panel.show(state);
  document.body.dataset.view = state.id ? "passage" : state.q ? "ranking" : "welcome";
  results.setAttribute("aria-busy", "true");
  try {
    statusText = await (state.id ? passageView : state.q ? rankingView : welcome)(results, signal);
    if (!quiet) $("status").textContent = statusText;
  } catch (error) {
    if (error.name === "AbortError") return false;
    refused(error, () => show());
  }
  shownAddress = newAddress;
  results.setAttribute("aria-busy", "false");
  return true;
}

function refused(error, again) {
  $("status").textContent = "";
  stopAnswer();
  if (!(error instanceof api.ServiceError)) throw error;
  $("results").replaceChildren(error.status === 401 ? keyForm(error, again) : failure(error, again));
}

function welcome(results) {
  stopAnswer();
  document.title = "sparta";
  const examples = info.examples ?? [];
  results.replaceChildren(h("section", { class: "welcome" },
    h("h2", {}, "Ask, and see why."),
    h("p", {}, "A transformer read every passage once and wrote down how much each word of the language counts in it. A question is looked up and summed: the bars show what each word gave."),
    examples.length > 0 && h("ul", { class: "examples", "aria-label": "Questions to begin with" },
      examples.map((q) => h("li", {}, h("a", { href: address({ q, page: 1 }), onclick: follow, dir: "auto" }, q))))));
  return "";
}

async function passageView(results, signal) {
  stopAnswer();
  const title = await showPassage(results, state, signal, address({ id: "" }), follow);
  document.title = `${title} – sparta`;
  $("passage-title").focus();
  return "";
}

async function rankingView(results, signal) {
  const ways = state.vs && state.vs !== state.by ? [state.by, state.vs] : [state.by];
  const deep = ways.length > 1 && state.page === 1 && state.k < DEPTH;
  const [shown, places] = await Promise.all([
    Promise.all(ways.map((way) => api.search(request(state, way), signal))),
    deep ? Promise.all(ways.map((way) => placesOf(way, signal))) : [],
  ]);
  if (signal.aborted) throw new DOMException("", "AbortError");
  document.title = `${state.q} – sparta`;
  versionIs(shown[0].version);
  const hits = shown.map((one) => one.hits);
  putTogether(hits.flat());
  paint(hits.flat());
  answer(hits.flat().length);
  const name = (way) => named(way, state);
  const look = (way) => ({ colours: colours.of, weights: weights(way), way, link, follow, before: ranksBefore });
  const parts = hits.flat().length === 0 ? [nothing()] : ways.length > 1
    ? [key(), sideBySide(ways.map((way, i) => ({ way, name: name(way), hits: hits[i], places: places[i] })), deep ? DEPTH : 0, look)]
    : [key(ways[0]), h("h2", { class: "hidden" }, "Passages"), ranking(hits[0], look(ways[0]))];
  replace(results, ...parts, pages(Math.max(...hits.map((own) => own.length))));
  slopes(results);
  const took = Math.max(...shown.map((one) => one.took_ms ?? 0));
  return `${plural(hits[0].length, "passage")} by ${ways.map(name).join(", beside ")}${moves(hits[0])}${took ? `, in ${took < 1 ? "less than 1" : number(Math.round(took))} ms` : ""}`;
}

/** What the last move of α did, for those who do not see it. */
function moves(hits) {
  if (!ranksBefore) return "";
  const up = hits.filter((hit) => ranksBefore.get(hit.id) > hit.rank).length;
  const fresh = hits.filter((hit) => !ranksBefore.has(hit.id)).length;
  return up || fresh ? `, ${up} moved up, ${fresh} new` : ", the same order";
}

async function placesOf(way, signal) {
  try {
    const { hits } = await api.search({ ...request(state, way), k: DEPTH, explain: false }, signal);
    return new Map(hits.map((hit) => [hit.id, hit.rank]));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null; // so deep is not allowed here
  }
}

/** Words keep their colours for as long as the question stays. */
function paint(hits) {
  const fresh = hits.flatMap((hit) => hit.words).some(({ term, share }) => share > 0 && !colours.of.has(term));
  if (colours.q === state.q && !fresh) return;
  colours = { q: state.q, of: coloursOf(hits) };
  delete $("results").dataset.spot;
}

const weights = (way) => new Map(channelsOf(way, state).split(",").map((part) => part.trim().split("=")).map(([name, own]) => [name, Number(own ?? 1)]));

function key(way) {
  const words = colours.of.size > 0 && legend(colours.of, $("results"));
  const fused = way === "hybrid" || way === "default";
  const said = fused ? "Bars: what each channel adds to the score, from the line of zero. The thin bar: what each word gives by impacts."
    : way === "impact" ? "Bars: what each word gives; their sum is the score." : "Bars: the score. The thin bar: what each word gives by impacts.";
  return h("div", { class: "key" }, words, way && h("p", { class: "quiet" }, words || fused ? said : "Bars: the score."));
}

function nothing() {
  const filtered = Object.keys(state.filter).length > 0;
  return h("section", { class: "nothing" },
    h("h2", {}, state.page > 1 ? "No more passages." : filtered ? "The filter leaves no passage for this question."
      : "No passage has a word or a term of this question."),
    state.page > 1 ? null : h("p", {}, filtered ? "→ take the filter away, or ask in other words" : "→ ask in other words"));
}

function pages(found) {
  const { page, k } = state;
  if (page === 1 && found < k) return h("nav", { hidden: true });
  const turn = (to, said, rel) => h("a", { href: address({ page: to }), onclick: follow, rel }, said);
  const fused = [state.by, state.vs || state.by].some((way) => /[,=]/.test(channelsOf(way, state)));
  const more = found >= k && (page + 1) * k <= (fused ? FUSED : DEEPEST);
  return h("nav", { class: "pages", "aria-label": "Pages" },
    page > 1 ? turn(page - 1, "← Before", "prev") : h("span"),
    h("span", { "aria-current": "page" }, found > 0 && `${number((page - 1) * k + 1)} to ${number((page - 1) * k + found)}`),
    more ? turn(page + 1, "Next →", "next") : h("span"));
}

/** Let the reader answer a question that stands for a moment, once, from what is ranked. */
async function answer(found) {
  const { query, channels, filter } = request(state, state.by);
  const body = { query, channels, filter, n: 3 };
  if (!info.answers || JSON.stringify(answering.body) === JSON.stringify(body)) return;
  answering.controller.abort();
  answering = { body, controller: new AbortController() };
  const { signal } = answering.controller;
  const place = $("answer");
  place.replaceChildren(...(found ? [reading()] : []));
  if (!found) return;
  try {
    await new Promise((resolve) => setTimeout(resolve, READING));
    if (signal.aborted) return;
    const found = await api.answers(body, signal);
    place.replaceChildren(answerView([found.answers ?? found].flat(), { link, follow }) ?? noAnswer());
  } catch (error) {
    if (error.name === "AbortError") return;
    answering.body = null; // so that the same question is asked again
    place.replaceChildren(failure(error));
  }
}

/** Take the answer away, also one that is on its way. */
function stopAnswer() {
  answering.controller.abort();
  answering.body = null;
  $("answer").replaceChildren();
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  const q = $("q").value.trim();
  if (!info) return;
  go({ q, page: 1, id: "" }, { instead: typing && state.q === q });
  typing = false;
});

let timer;
$("q").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const q = $("q").value.trim();
    if (!info || q === state.q) return;
    go({ q, page: 1, id: "" }, { instead: typing });
    typing = true;
  }, TYPING);
});

/** A link to a place in the page goes there; as an entry of the history it would be asked for again. */
addEventListener("click", (event) => {
  const inner = event.target.closest("a[href^='#']");
  if (!inner || opensElsewhere(event)) return;
  event.preventDefault();
  $(inner.hash.slice(1)).focus();
});

$("home").addEventListener("click", (event) => info && follow(event));
history.scrollRestoration = "manual";
addEventListener("popstate", async (event) => {
  if (!info) return;
  const left = state.id;
  state = fromAddress(location.search, info);
  typing = false;
  $("q").value = state.q;
  await show();
  if (!state.id) focusHit(left);
  scrollTo(0, event.state?.y ?? 0);
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state?.id && event.target !== $("q")) document.querySelector(".back a")?.click();
});
new ResizeObserver(() => slopes($("results"))).observe($("results"));

start();
