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

// Formats the progress of a check. The total of a repaired copy is unknown: 0.
export function describeProgress(done, total, records) {
  const count = records.toLocaleString("en");
  const read = records ? `${count} ${records === 1 ? "record" : "records"}` : "";
  return [total ? `${size(done)} of ${size(total)}` : "", read].filter(Boolean).join(", ");
}

// Returns a function that announces each quarter to screen readers.
export function makeAnnouncer(element, verb) {
  let announced = 0;
  return (done, total) => {
    const quarter = Math.floor((done / (total || 1)) * 4);
    if (quarter > announced && quarter < 4) element.textContent = `${quarter * 25} percent ${verb}`;
    announced = quarter;
  };
}
