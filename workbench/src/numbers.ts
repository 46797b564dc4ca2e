/** How figures are written: the same everywhere. */

export interface Figure {
  value: number | null;
  low?: number | null;
  high?: number | null;
  n?: number;
}

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return value.toFixed(digits);
}

export function signed(value: number, digits = 3): string {
  return `${value < 0 ? "" : "+"}${value.toFixed(digits)}`;
}

export function figure(given: Figure, digits = 3): string {
  if (given.value === null) return "no value";
  if (given.low === null || given.low === undefined || given.high === null || given.high === undefined) return number(given.value, digits);
  return `${given.value.toFixed(digits)} [${given.low.toFixed(digits)}, ${given.high.toFixed(digits)}]`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  return `${Math.round(seconds / 60)} min`;
}

/** A count with its thousands apart. */
export function whole(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function dollars(value: number | null | undefined): string {
  if (value === null || value === undefined) return "cost not known";
  return value === 0 ? "no cost" : `$${value.toFixed(value < 0.1 ? 4 : 2)}`;
}

/** Where a value stands on a strip from 0 to 100; the scale holds 0, 1 and every point. */
export function scale(points: number[]): (value: number) => number {
  const bottom = Math.min(0, ...points);
  const top = Math.max(1, ...points);
  return (value) => (100 * (value - bottom)) / (top - bottom);
}
