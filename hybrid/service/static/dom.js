// Elements and numbers. Texts become text nodes: nothing that a passage holds is ever read as HTML.

/** Make an element: h("a", {class: "id", href, onclick, css: {"--w": "40%"}}, "text", element, null…). */
export function h(tag, props = {}, ...children) {
  const element = tag === "svg" || tag === "path"
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "css") for (const [key, own] of Object.entries(value)) element.style.setProperty(key, own);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected" || name === "open") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** A whole number with its thousands. */
export const number = (x) => x.toLocaleString("en-US").replace("-", "−");

/** Three decimals, and a real minus. */
export const fixed = (x) => (Math.abs(x) < 0.0005 ? "0.000" : x.toFixed(3).replace("-", "−"));

/** A score of a ranking: those by impacts are whole numbers. */
export const scored = (x, way) => (way === "impact" ? number(x) : fixed(x));

export const signed = (x) => (x >= 0.0005 ? "+" : "") + fixed(x);
export const percent = (x) => `${Math.round(100 * x)} %`;
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** A wordpiece as people read it: what continues a word begins with a hyphen. */
export const shownTerm = (term) => term.replace(/^##/, "‑");

/** Letters as the tokenizer compares them: small, without accents. */
export const folded = (text) => text.toLowerCase().normalize("NFD").replace(/\p{M}/gu, "");

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A table; the first cell of a row is its heading, the others are numbers that are written already. */
export function table(caption, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map(([first, ...others]) =>
        h("tr", {}, h("th", { scope: "row" }, first), others.map((own) => h("td", { class: "n" }, own)))))));
}
