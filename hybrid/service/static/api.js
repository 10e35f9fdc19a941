// The service. A key is kept for as long as the tab is open, and sent with every request.

const KEY = "sparta-key";

export class ServiceError extends Error {
  constructor(message, { code = "", remedy = "", status = 0, request = "" } = {}) {
    super(message);
    Object.assign(this, { code, remedy, status, request });
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);

/** Ask the service: GET, or POST where there is a body. Raises ServiceError with what the service says. */
export async function call(path, { body, signal } = {}) {
  const headers = {};
  if (hasKey()) headers["X-API-Key"] = sessionStorage.getItem(KEY);
  if (body) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const message = response ? `the service answered ${response.status} without JSON` : "the service cannot be reached";
    throw new ServiceError(message, {
      code: "unreachable", status: response?.status, remedy: "check that sparta serve is running, then search again",
    });
  }
  if (response.ok) return answer;
  const { error = {}, request_id: request } = answer;
  const wait = response.headers.get("Retry-After");
  throw new ServiceError(error.message ?? `the service answered ${response.status}`, {
    code: error.code, status: response.status, request,
    remedy: [error.remedy, wait && `ask again in ${wait} s`].filter(Boolean).join("; "),
  });
}

export const search = (body, signal) => call("search", { body, signal });
export const explain = (query, id, signal) => call("explain", { body: { query, id }, signal });
export const answers = (body, signal) => call("answer", { body, signal });
export const passage = (id, signal) => call(`passages/${encodeURIComponent(id)}`, { signal });
export const terms = (id, n, signal) => call(`terms/${encodeURIComponent(id)}?n=${n}`, { signal });
export const info = () => call("info");
