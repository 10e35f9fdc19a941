// What the page shows, and its address: one is made from the other, so a link shows what its sender saw.

export const SIZES = [10, 20, 50];
export const HIGHEST_ALPHA = 3;
export const ALPHA_STEP = 0.05;

/** What stands in the address when nothing else is chosen: the service's own ranking, `usual`. */
function defaults(info) {
  const usual = info.default_channels;
  const by = info.channels.includes(usual) ? usual : asHybrid(info) ? "hybrid" : "default";
  return {
    q: "", by, a: 1, base: bases(info)[0] ?? "", ...asHybrid(info), usual,
    vs: "", page: 1, k: SIZES[0], filter: {}, one: "", id: "",
  };
}

/** The base and the α with which the hybrid is the service's own ranking; null where it is another. */
function asHybrid(info) {
  const [, base, given] = info.default_channels.match(/^(.+),bm25(?:=([\d.]+))?$/) ?? [];
  const a = Number(given ?? 1);
  return bases(info).includes(base) && a <= HIGHEST_ALPHA && rounded(a) === a ? { base, a } : null;
}

const rounded = (a) => Number((Math.round(a / ALPHA_STEP) * ALPHA_STEP).toFixed(2));

/** Read an address. What it cannot mean is as if it were not there. */
export function fromAddress(search, info) {
  const given = new URLSearchParams(search);
  const state = defaults(info);
  const ways = rankings(info);
  const pick = (name, allowed) => allowed.includes(given.get(name)) && (state[name] = given.get(name));
  state.q = given.get("q") ?? "";
  state.id = given.get("id") ?? "";
  state.one = given.get("one") ?? "";
  pick("by", ways);
  pick("vs", ways);
  pick("base", bases(info));
  const alpha = Number.parseFloat(given.get("a"));
  if (alpha >= 0 && alpha <= HIGHEST_ALPHA) state.a = rounded(alpha);
  const page = Number.parseInt(given.get("page"), 10);
  if (page >= 1) state.page = page;
  if (SIZES.includes(Number(given.get("k")))) state.k = Number(given.get("k"));
  try {
    const filter = JSON.parse(given.get("filter"));
    if (filter && typeof filter === "object" && !Array.isArray(filter)) state.filter = filter;
  } catch { /* no filter then */ }
  return state;
}

/** The address of a state, with changes; what is as usual is left out. */
export function toAddress(state, info, changes = {}) {
  const usual = defaults(info);
  const own = { ...state, ...changes };
  const params = new URLSearchParams();
  for (const name of ["q", "by", "base", "a", "vs", "page", "k", "one", "id"]) {
    const value = name === "a" ? alphaOf(own.a) : String(own[name]);
    if (value !== (name === "a" ? alphaOf(usual.a) : String(usual[name]))) params.set(name, value);
  }
  if (Object.keys(own.filter).length) params.set("filter", JSON.stringify(own.filter));
  return `?${params}`;
}

export const alphaOf = (a) => String(Math.round(a * 100) / 100);

/** The rankings that can be chosen: every channel, their hybrid, and the service's own where it is none of these. */
export function rankings(info) {
  const mixable = info.channels.includes("bm25") && info.channels.length > 1;
  const own = defaults(info).by === "default";
  return [...info.channels, ...(mixable ? ["hybrid"] : []), ...(own ? ["default"] : [])];
}

/** What BM25 can be added to. */
export function bases(info) {
  const others = info.channels.filter((name) => name !== "bm25");
  return others.length > 1 ? [others.join(","), ...others] : others;
}

/** A ranking as the service names it: `impact`, or `impact,bm25=0.8`. */
export const channelsOf = (way, state) =>
  ({ hybrid: `${state.base},bm25=${alphaOf(state.a)}`, default: state.usual })[way] ?? way;

/** A ranking in words, for headings and for what is read aloud. */
export const named = (way, state) =>
  way === "hybrid" ? `${state.base.replace(",", " + ")} + ${alphaOf(state.a)} · bm25` : channelsOf(way, state);

/** The body of a search. */
export function request(state, way) {
  const body = { query: state.q, k: state.k, channels: channelsOf(way, state), explain: true, rerank: 0 };
  if (state.page > 1) body.offset = (state.page - 1) * state.k;
  if (Object.keys(state.filter).length) body.filter = state.filter;
  if (state.one) body.collapse = state.one;
  return body;
}
