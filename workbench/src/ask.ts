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
  if (!response.ok) throw new Refused(data?.error ?? `the server answered ${response.status}`);
  return data;
}

export async function get(path: string, query: Record<string, string> = {}): Promise<any> {
  const search = new URLSearchParams(query).toString();
  return answer(await fetch(`/api/${path}${search ? `?${search}` : ""}`));
}

export async function post(path: string, body: unknown): Promise<any> {
  return answer(await fetch(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
}
