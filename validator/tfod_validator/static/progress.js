// How far a check is, by asking each second. At the end the report replaces the bar.
import { size } from "./size.js";

const panel = document.getElementById("progress");
const bar = document.getElementById("done");
const announcements = document.getElementById("live");
const job = panel.dataset.job;
let state = "";
let announced = 0;

function show(now) {
  const { bytes, records } = now.progress;
  const count = records.done.toLocaleString("en");
  const read = records.done ? `${count} ${records.done === 1 ? "record" : "records"}` : "";
  const sizes = bytes.total ? `${size(bytes.done)} of ${size(bytes.total)}` : "";
  document.getElementById("done-words").textContent = [sizes, read].filter(Boolean).join(", ");
  if (bytes.total) bar.value = bytes.done; // how long a copy is that is being made, nobody knows
  if (now.state !== state) {
    state = now.state;
    const runs = state === "running";
    document.querySelector("h1").textContent = runs ? "Checking" : "Waiting";
    const doing = bytes.total ? "Checked so far" : "Repairing a copy, and checking it";
    document.getElementById("doing").textContent = runs ? doing : "Waiting for its turn";
    announcements.textContent = runs ? "The check has begun" : "Waiting for its turn";
  }
  // Screen readers hear of each quarter.
  const quarter = Math.floor((bytes.done / (bytes.total || 1)) * 4);
  if (quarter > announced && quarter < 4) announcements.textContent = `${quarter * 25} percent checked`;
  announced = quarter;
}

async function finish() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.title = page.title;
    document.getElementById("main").replaceChildren(...page.getElementById("main").childNodes);
    document.dispatchEvent(new Event("replaced"));
    announcements.textContent = page.title;
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch {
    location.reload();
  }
}

async function poll() {
  try {
    const answer = await fetch(job, { headers: { Accept: "application/json" } });
    if (answer.status === 404 || answer.status === 401) {
      location.reload();
      return;
    }
    const now = await answer.json();
    if (now.state === "finished" || now.state === "failed") {
      finish();
      return;
    }
    show(now);
  } catch {
    document.getElementById("done-words").textContent = "The service does not answer; asking again";
  }
  setTimeout(poll, 1000);
}

poll();
