// How it is ranked: channel or hybrid, the weight of BM25, another ranking beside it, filters.

import { ALPHA_STEP, HIGHEST_ALPHA, SIZES, alphaOf, bases, rankings } from "./state.js";
import { filters } from "./filters.js";
import { h } from "./dom.js";

/** The controls of an index. `change(changes, how)` is told of each choice; `show(state)` sets them. */
export function controls(info, change) {
  const ways = rankings(info);
  const way = choice("Rank by", "by", ways, (by, state) => change({ by, vs: state.vs === by ? state.by : state.vs, page: 1 }));
  const beside = select("Beside it", "vs", (vs) => change({ vs, page: 1 }));
  const base = select("Base", "base", (base) => change({ base, page: 1 }));
  const count = select("Hits", "k", (k) => change({ k: Number(k), page: 1 }));
  const alpha = slider(change);
  const narrow = filters(info, change);
  const several = ways.length > 1;
  const element = h("div", { class: "controls" },
    h("div", { class: "row" }, several && way.element, several && beside.element, count.element),
    h("div", { class: "row mix" }, bases(info).length > 1 && base.element, alpha.element),
    narrow?.element);
  return {
    element,
    show(state) {
      const mixed = [state.by, state.vs].includes("hybrid");
      element.querySelector(".mix").hidden = !mixed;
      way.show(state);
      beside.show(state.vs, [["", "nothing"], ...ways.filter((one) => one !== state.by).map((one) => [one, one])]);
      base.show(state.base, bases(info).map((one) => [one, one.replace(",", " + ")]));
      count.show(String(state.k), SIZES.map((size) => [String(size), String(size)]));
      alpha.show(state);
      narrow?.show(state);
    },
  };
}

function choice(name, id, ways, chosen) {
  let state;
  const inputs = ways.map((own) => h("input", { type: "radio", name: id, id: `${id}-${own}`, value: own, onchange: () => chosen(own, state) }));
  const element = h("fieldset", { class: "choice" }, h("legend", {}, name),
    h("div", { class: "options" }, inputs.map((input) => h("span", {}, input, h("label", { for: input.id }, input.value)))));
  const show = (now) => {
    state = now;
    for (const input of inputs) input.checked = input.value === now.by;
  };
  return { element, show };
}

function select(name, id, chosen) {
  const field = h("select", { id, onchange: () => chosen(field.value) });
  const show = (value, options) => {
    field.replaceChildren(...options.map(([option, text]) => h("option", { value: option, selected: option === value }, text)));
  };
  return { element: h("div", { class: "field" }, h("label", { for: id }, name), field), show };
}

/** α: each step is told as `moving`, the last one as `settled`. */
function slider(change) {
  const output = h("output", { for: "alpha" });
  const field = h("input", { type: "range", id: "alpha", min: 0, max: HIGHEST_ALPHA, step: ALPHA_STEP, list: "alphas", "aria-describedby": "alpha-note" });
  const formula = h("span", { class: "formula", id: "alpha-note" });
  const tell = (how) => () => {
    output.value = alphaOf(Number(field.value));
    change({ a: Number(field.value), page: 1 }, how);
  };
  field.addEventListener("input", tell("moving"));
  field.addEventListener("change", tell("settled"));
  const element = h("div", { class: "alpha" },
    h("label", { for: "alpha" }, "Weight of BM25, α"),
    h("div", { class: "line" }, field, output),
    formula,
    h("datalist", { id: "alphas" }, [...Array(HIGHEST_ALPHA + 1).keys()].map((alpha) => h("option", { value: alpha }))));
  const show = (state) => {
    if (Number(field.value) !== state.a) field.value = state.a;
    output.value = alphaOf(state.a);
    field.setAttribute("aria-valuetext", `α = ${alphaOf(state.a)}`);
    formula.textContent = `score = ${state.base.replace(",", " + ")} + α · bm25`;
  };
  return { element, show };
}
