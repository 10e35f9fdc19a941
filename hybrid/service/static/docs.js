// The API of the service, read from its OpenAPI document: endpoints, parameters, bodies and answers.

import { h, $ } from "./dom.js";
import { call } from "./api.js";

const METHODS = ["get", "post", "put", "delete"];
const ADDRESS = new URL(".", location.href).href.replace(/\/$/, "");

try {
  const api = await call("openapi.json");
  const shown = Object.entries(api.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => endpoint(api, path, method, methods[method])));
  $("endpoints").append(...shown);
  if (api.security) $("status").textContent = "Requests need a key, in the header X-API-Key or as Authorization: Bearer KEY.";
} catch (error) {
  $("status").textContent = `The API's description cannot be read: ${error.message}`;
}

/** One endpoint: what it does, its parameters, an example, and the fields of its body and its answer. */
function endpoint(api, path, method, { description, summary, parameters = [], requestBody, responses }) {
  const content = Object.entries(requestBody?.content ?? {});
  const [, answer] = Object.entries(responses).find(([status]) => status === "200") ?? [];
  return h("details", { class: "endpoint" },
    h("summary", {}, h("code", {}, `${method.toUpperCase()} ${path}`), ` ${(description ?? summary ?? "").split("\n")[0]}`),
    description?.includes("\n") && h("p", {}, description),
    parameters.length > 0 && fields("Parameters", parameters.map((own) => ({ ...own, type: typeOf(api, own.schema), standard: own.schema?.default }))),
    requestBody?.description && h("p", {}, requestBody.description),
    content.map(([kind, { schema }]) => schema && described(api, `Body (${kind})`, schema)),
    h("pre", { tabindex: "0", "aria-label": "Example" }, curl(path, method, parameters, content[0])),
    answer?.content && described(api, "Answer", answer.content["application/json"]?.schema));
}

/** A command that works as typed, as far as the examples of the description go. */
function curl(path, method, parameters, body) {
  const query = parameters.find((own) => own.in === "query" && own.required);
  const filled = path.replace(/\{(\w+)(:path)?\}/g, (_, name) => parameters.find((own) => own.name === name)?.schema?.examples?.[0] ?? name.toUpperCase());
  const words = ["curl", ["get", "post"].includes(method) ? null : `-X ${method.toUpperCase()}`, `'${ADDRESS}${filled}${query ? `?${query.name}=moon` : ""}'`];
  if (body) {
    const [kind, { example }] = body;
    words.push(`-H 'Content-Type: ${kind}'`, `--data-binary ${quoted(typeof example === "string" ? example : JSON.stringify(example))}`);
  }
  return words.filter(Boolean).join(" ");
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** What a $ref names; the schema itself otherwise. */
function resolved(api, schema = {}) {
  return schema.$ref ? schema.$ref.split("/").slice(1).reduce((own, key) => own?.[key], api) ?? {} : schema;
}

function typeOf(api, schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((own) => typeOf(api, own)).filter((own) => own !== "null").join(" or ");
  if (schema.type === "array") return `list of ${typeOf(api, schema.items)}`;
  return schema.type ?? "any";
}

/** The fields of a schema as a table, and those of the schemas that it names, once each. */
function described(api, heading, schema, known = new Set()) {
  const parts = (schema?.anyOf ?? [schema]).flatMap((own) => {
    const name = own?.$ref?.split("/").pop() ?? "";
    if (name && known.has(name)) return [];
    known.add(name);
    const whole = resolved(api, own);
    const rows = Object.entries(whole.properties ?? {}).map(([field, value]) => ({
      name: field, type: typeOf(api, value), description: resolved(api, value).description,
      standard: value.default, required: whole.required?.includes(field),
    }));
    const inner = Object.values(whole.properties ?? {}).flatMap((value) => [value, value.items, ...(value.anyOf ?? [])]).filter((value) => value?.$ref);
    return [rows.length > 0 && fields(name ? `${heading}: ${name}` : heading, rows), ...inner.map((value) => described(api, heading, value, known))];
  });
  return parts;
}

function fields(caption, rows) {
  const text = ({ required, standard, description }) =>
    [required ? "Required." : null, description, standard === undefined || standard === null ? null : `Default: ${JSON.stringify(standard)}.`].filter(Boolean).join(" ");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ["name", "type", "meaning"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), h("td", {}, row.type), h("td", {}, text(row)))))));
}
