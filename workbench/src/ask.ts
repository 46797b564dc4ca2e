/** Requests to the server: JSON in, JSON out; what goes wrong comes back as one line. */

export class Refused extends Error {}

async function answer(response: Response): Promise<any> {
  const text = await response.text();
  let data: any = null;
  try {
    data = JSON.parse(text);
  } catch {
    if (!response.ok) throw new Refused(text || `the server answered ${response.status}`);
  }
  if (data?.stopped) throw new Refused(data.stopped);
  if (!response.ok) throw new Refused(data?.error ?? `the server answered ${response.status}`);
  return data;
}

export async function get(path: string, query: Record<string, string> = {}): Promise<any> {
  const search = new URLSearchParams(query).toString();
  return answer(await fetch(`/api/${path}${search ? `?${search}` : ""}`));
}

/** `work` is a name under which the server says how far it is. */
export async function post(path: string, body: unknown, work?: string): Promise<any> {
  const headers: Record<string, string> = { "content-type": "application/json", ...(work ? { "x-vesalius-work": work } : {}) };
  return answer(await fetch(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}
