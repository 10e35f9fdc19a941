// Filters on the fields of the records, and one hit for each value of a field.

import { h } from "./dom.js";

const WAYS = [["is", "is"], ["in", "is one of"], ["gte", "≥"], ["lte", "≤"], ["gt", ">"], ["lt", "<"],
  ["not", "is not"], ["exists", "has a value"], ["lacks", "has no value"]];
const WITHOUT_VALUE = ["exists", "lacks"];

/** The controls of filter and collapse; null where the records have no fields. */
export function filters(info, change) {
  const names = info.fields;
  if (names.length === 0) return null;
  const rows = h("div", { class: "rows" });
  const tell = () => change({ filter: filterOf([...rows.children]), page: 1 });
  const add = (row, focus) => {
    rows.append(line(names, row, tell));
    if (focus) rows.lastChild.querySelector("input").focus();
  };
  const one = h("select", { id: "one", onchange: () => change({ one: one.value, page: 1 }) });
  const count = h("span", { class: "count" });
  const element = h("details", { class: "filters" },
    h("summary", {}, "Filter", count),
    rows,
    h("div", { class: "row" },
      h("button", { type: "button", class: "plain", onclick: () => add({ field: names[0], way: "is", value: "" }, true) }, "Add a filter"),
      h("div", { class: "field" }, h("label", { for: "one" }, "One hit for each"), one)));
  let shown = "";
  const show = (state) => {
    const now = JSON.stringify(state.filter);
    if (now !== shown && now !== JSON.stringify(filterOf([...rows.children]))) {
      rows.replaceChildren();
      rowsOf(state.filter).forEach((row) => add(row));
    }
    shown = now;
    one.replaceChildren(...["", ...names].map((name) =>
      h("option", { value: name, selected: name === state.one }, name || "passage")));
    const active = rowsOf(state.filter).length + (state.one ? 1 : 0);
    count.textContent = active ? ` · ${active} on` : "";
    if (active) element.open = true;
  };
  return { element, show };
}

const read = (row) => {
  const [field, way] = row.querySelectorAll("select");
  return { field: field.value, way: way.value, value: row.querySelector("input").value.trim() };
};

function line(names, { field, way, value }, tell) {
  const pick = (label, options, own) => h("select", { "aria-label": label, onchange: tell },
    options.map(([name, said]) => h("option", { value: name, selected: name === own }, said)));
  const row = h("div", { class: "row", role: "group", "aria-label": "Filter" },
    pick("Field", names.map((name) => [name, name]), field),
    pick("Condition", WAYS, way),
    h("input", { type: "text", "aria-label": "Value", value, onchange: tell, autocomplete: "off" }),
    h("button", { type: "button", class: "plain", "aria-label": "Remove this filter", onclick: () => { row.remove(); tell(); } }, "×"));
  return row;
}

/**
 * Rows as the service's filter: `{"lang": "en"}`, `{"lang": {"in": […]}}`, `{"year": {"gte": 1990}}`.
 * A row that cannot be joined with one before it is left out, and says so.
 */
function filterOf(rows) {
  const filter = {};
  for (const row of rows) {
    row.querySelector(".failure")?.remove();
    const { field, way, value } = read(row);
    row.querySelector("input").hidden = WITHOUT_VALUE.includes(way);
    if (value === "" && !WITHOUT_VALUE.includes(way)) continue;
    const before = filter[field];
    if (before === undefined) filter[field] = condition(way, value);
    else if (isBound(before, way)) Object.assign(before, condition(way, value));
    else row.append(h("p", { class: "failure", role: "alert" }, `Left out: ${field} has a filter. “is one of” takes several values.`));
  }
  return filter;
}

function condition(way, value) {
  if (way === "is") return value; // texts and numbers are one there
  if (way === "in") return { in: listed(value) };
  if (way === "not") return { not: value };
  if (WITHOUT_VALUE.includes(way)) return { exists: way === "exists" };
  return { [way]: Number.isFinite(Number(value)) ? Number(value) : value };
}

/** Whether a row adds the other bound to one. */
const isBound = (before, way) => /^[gl]t/.test(way) && typeof before === "object" && Object.keys(before).every((own) => /^[gl]t/.test(own) && own[0] !== way[0]);

/** The rows that show a filter. */
function rowsOf(filter) {
  return Object.entries(filter).flatMap(([field, own]) => {
    if (own === null || typeof own !== "object") return [{ field, way: "is", value: String(own) }];
    if (Array.isArray(own) || typeof own.not === "object") return []; // combined filters of a link have no row
    if ("exists" in own) return [{ field, way: own.exists ? "exists" : "lacks", value: "" }];
    return Object.entries(own).map(([way, value]) => ({ field, way, value: way === "in" ? joined([value].flat()) : String(value) }));
  });
}

/** Values with commas between; one that holds a comma or a quote stands in quotes, as in CSV. */
const joined = (values) => values.map(String).map((own) => (/[",]|^\s|^$|\s$/.test(own) ? `"${own.replaceAll('"', '""')}"` : own)).join(", ");

function listed(text) {
  const parts = [...text.matchAll(/\s*"((?:[^"]|"")*)"\s*(?=,|$)|[^,]+/g)];
  return parts.map(([own, quoted]) => quoted?.replaceAll('""', '"') ?? (own.trim() || null)).filter((own) => own !== null);
}
