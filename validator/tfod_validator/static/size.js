// Formats a number of bytes.
export function size(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (count >= 1000 && power < units.length - 1) {
    count /= 1000;
    power += 1;
  }
  return `${power ? count.toFixed(1) : count} ${units[power]}`;
}
