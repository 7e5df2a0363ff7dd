// Shows the progress of a check, and then replaces it with the report.
import { describeProgress, makeAnnouncer } from "./size.js";

const panel = document.getElementById("progress");
const bar = document.getElementById("done");
const announcements = document.getElementById("live");
const announce = makeAnnouncer(announcements, "checked");
const job = panel.dataset.job;
let state = "";

function show(now) {
  const { bytes, records } = now.progress;
  const text = describeProgress(bytes.done, bytes.total, records.done);
  document.getElementById("done-words").textContent = text;
  if (bytes.total) bar.value = bytes.done; // otherwise it has no value: the size of a repaired copy is unknown
  if (now.state !== state) {
    state = now.state;
    const runs = state === "running";
    document.querySelector("h1").textContent = runs ? "Checking" : "Waiting";
    document.getElementById("doing").textContent = runs ? panel.dataset.doing : "Waiting for other checks";
    announcements.textContent = runs ? "The check has started" : "Waiting for other checks";
  }
  announce(bytes.done, bytes.total);
}

async function finish() {
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!response.ok) throw new Error(response.statusText);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
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
    const response = await fetch(job, { headers: { Accept: "application/json" } });
    if (response.status === 404 || response.status === 401) {
      location.reload();
      return;
    }
    const now = await response.json();
    if (now.state === "finished" || now.state === "failed") {
      finish();
      return;
    }
    show(now);
  } catch {
    document.getElementById("done-words").textContent = "The service does not respond. Trying again.";
  }
  setTimeout(poll, 1000);
}

poll();
