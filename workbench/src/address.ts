/** Every view has an address: a path and a query. The page never loads anew; the address is written and read here. */

export type Query = Record<string, string>;
export interface Address {
  view: string;
  query: Query;
}

export function parse(path: string, search: string): Address {
  const view = path.replace(/^\/+|\/+$/g, "") || "runs";
  const query: Query = {};
  for (const [name, value] of new URLSearchParams(search)) query[name] = value;
  return { view, query };
}

export function format({ view, query }: Address): string {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  const search = new URLSearchParams(given).toString();
  return `/${view}${search ? `?${search}` : ""}`;
}
