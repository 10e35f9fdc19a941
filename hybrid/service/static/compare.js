// Two rankings side by side: what both found, and what one found that the other did not.

import { h, plural } from "./dom.js";
import { ranking } from "./hits.js";

/**
 * `sides` are two of {way, name, hits, places}: places is {id: rank} as deep as was looked, `depth`.
 * `look(way)` gives the rest of what a ranking needs.
 */
export function sideBySide(sides, depth, look) {
  const shown = sides.map((side) => new Set(side.hits.map((hit) => hit.id)));
  const alone = sides.map((side, i) => side.hits.filter((hit) => !shown[1 - i].has(hit.id)));
  const both = sides[0].hits.length - alone[0].length;
  return h("div", { class: "compare" },
    h("p", { class: "summary" },
      h("strong", {}, plural(both, "passage")), " in both. ",
      sides.map((side, i) => [
        h("span", { class: "only" }, `Only ${side.name}`), ": ",
        alone[i].length ? alone[i].map((hit, n) => [n ? ", " : "", h("a", { href: `#${anchor(i, hit)}` }, hit.title || hit.id)]) : "none",
        ". ",
      ])),
    h("div", { class: "sides" }, sides.map((side, i) => column(side, i, sides[1 - i], depth, look(side.way)))));
}

const anchor = (side, hit) => `side-${side}-${hit.rank}`;

function column(side, i, other, depth, look) {
  const inOther = new Map(other.hits.map((hit) => [hit.id, hit.rank]));
  const note = (hit) => {
    const rank = inOther.get(hit.id);
    if (rank) return h("p", { class: "note" }, `#${rank} in ${other.name}`, moved(rank - hit.rank));
    const far = other.places?.get(hit.id);
    return h("p", { class: "note alone" }, `only here`,
      h("span", {}, far ? `: #${far} in ${other.name}` : depth && other.places ? `: not among the ${depth} best of ${other.name}` : ""));
  };
  const list = ranking(side.hits, { ...look, note, marker: (hit) => !inOther.has(hit.id) });
  [...list.children].forEach((li, n) => Object.assign(li, { id: anchor(i, side.hits[n]), tabIndex: -1 }));
  return h("section", { class: "side", "data-side": String(i), "aria-label": `By ${side.name}` },
    h("h2", {}, side.name),
    side.hits.length ? list : h("p", { class: "quiet" }, "No passage."));
}

function moved(by) {
  if (by === 0) return "";
  const said = by > 0 ? `${by} higher here` : `${-by} lower here`;
  return h("span", {}, ` · ${by > 0 ? "↑" : "↓"} `, said);
}

/** Lines between the places of one passage in both rankings, drawn into the gap between them. */
export function slopes(root) {
  const sides = root.querySelector(".sides");
  if (!sides) return;
  sides.querySelector("svg")?.remove();
  const [left, right] = sides.querySelectorAll(".side");
  const [from, to, box] = [left, right, sides].map((one) => one.getBoundingClientRect());
  if (to.left < from.right) return; // one below the other
  const middle = (li) => li.querySelector("h3").getBoundingClientRect().top - box.top + 10;
  const there = new Map([...right.querySelectorAll("li[data-id]")].map((li) => [li.dataset.id, li]));
  const width = to.left - from.right;
  const svg = h("svg", { class: "slopes", "aria-hidden": "true", css: { left: `${from.right - box.left}px`, width: `${width}px` } });
  for (const li of left.querySelectorAll("li[data-id]")) {
    const other = there.get(li.dataset.id);
    if (!other) continue;
    const [a, b] = [middle(li), middle(other)];
    svg.append(h("path", { d: `M0 ${a}C${width * 0.5} ${a} ${width * 0.5} ${b} ${width} ${b}`, "data-id": li.dataset.id }));
  }
  sides.append(svg);
}
