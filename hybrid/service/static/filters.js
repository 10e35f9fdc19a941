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
    rows.append(row.fixed ? fixedLine(row.fixed, tell) : line(names, row, tell));
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
      rowsOf(state.filter, names).forEach((row) => add(row));
    }
    shown = now;
    one.replaceChildren(...["", ...names].map((name) =>
      h("option", { value: name, selected: name === state.one }, name || "passage")));
    const active = rowsOf(state.filter, names).length + (state.one ? 1 : 0);
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
  return h("div", { class: "row", role: "group", "aria-label": "Filter" },
    pick("Field", names.map((name) => [name, name]), field),
    pick("Condition", WAYS, way),
    h("input", { type: "text", "aria-label": "Value", value, onchange: tell, autocomplete: "off" }),
    removal(tell));
}

/** A row that shows a part of a filter as JSON, and can only be removed. */
function fixedLine(fixed, tell) {
  const text = JSON.stringify(fixed);
  return h("div", { class: "row", role: "group", "aria-label": "Filter", "data-fixed": text },
    h("code", {}, text), removal(tell));
}

const removal = (tell) => h("button", {
  type: "button", class: "plain", "aria-label": "Remove this filter",
  onclick: (event) => { event.currentTarget.closest(".row").remove(); tell(); },
}, "×");

/**
 * Rows as the service's filter: `{"lang": "en"}`, `{"lang": {"in": […]}}`, `{"year": {"gte": 1990}}`.
 * A row that cannot be joined with another row of its field is left out, and says so.
 */
function filterOf(rows) {
  const fixed = Object.assign({}, ...rows.map((row) => JSON.parse(row.dataset.fixed ?? "{}")));
  const filter = {};
  for (const row of rows.filter((own) => !own.dataset.fixed)) {
    row.querySelector(".failure")?.remove();
    const { field, way, value } = read(row);
    row.querySelector("input").hidden = WITHOUT_VALUE.includes(way);
    if (value === "" && !WITHOUT_VALUE.includes(way)) continue;
    if (Object.hasOwn(fixed, field) || !added(filter, { field, way, value }))
      row.append(h("p", { class: "failure", role: "alert" }, `Left out: ${field} has a filter. “is one of” takes several values.`));
  }
  return { ...fixed, ...filter };
}

/** Add a row to a filter; whether the filter can hold it. */
function added(filter, { field, way, value }) {
  const before = filter[field];
  if (before === undefined) filter[field] = condition(way, value);
  else if (isBound(before, way)) Object.assign(before, condition(way, value));
  else return false;
  return true;
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

/** The rows that show a filter; a part that no controls can show is a row with this part as `fixed`. */
function rowsOf(filter, names) {
  return Object.entries(filter).flatMap(([field, own]) => {
    const rows = waysOf(own).map(([way, value]) => ({ field, way, value }));
    return names.includes(field) && saysTheSame(rows, field, own) ? rows : [{ fixed: { [field]: own } }];
  });
}

/** The ways and values, as texts, of a condition on a field. */
function waysOf(own) {
  if (own === null || typeof own !== "object") return [["is", String(own)]];
  if ("exists" in own) return [[own.exists ? "exists" : "lacks", ""]];
  return Object.entries(own).map(([way, value]) => [way, way === "in" ? joined([value].flat()) : String(value)]);
}

/** Whether the controls can show these rows, and the rows give the condition again. */
function saysTheSame(rows, field, own) {
  const again = {};
  const fits = ({ way, value }) => WAYS.some(([name]) => name === way) && value === value.trim() && (value !== "" || WITHOUT_VALUE.includes(way));
  return rows.every((row) => fits(row) && added(again, row)) && JSON.stringify(again[field]) === JSON.stringify(asTexts(own));
}

/** A condition with the values that are compared as texts, as the controls write them. */
function asTexts(own) {
  const text = (value) => (value === null || typeof value === "object" ? value : String(value));
  if (own === null || typeof own !== "object") return text(own);
  return Object.fromEntries(Object.entries(own).map(([way, value]) =>
    [way, way === "in" && Array.isArray(value) ? value.map(text) : way === "not" ? text(value) : value]));
}

/** Values with commas between; one that holds a comma or a quote stands in quotes, as in CSV. */
const joined = (values) => values.map(String).map((own) => (/[",]|^\s|^$|\s$/.test(own) ? `"${own.replaceAll('"', '""')}"` : own)).join(", ");

function listed(text) {
  const parts = [...text.matchAll(/\s*"((?:[^"]|"")*)"\s*(?=,|$)|[^,]+/g)];
  return parts.map(([own, quoted]) => quoted?.replaceAll('""', '"') ?? (own.trim() || null)).filter((own) => own !== null);
}
