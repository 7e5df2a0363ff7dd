// The page that checks in the browser: chosen files, the progress, the report, and the viewer.
import "./cards.js";
import { Checker } from "./checker.js";
import { addItems, countBytes, onDrop, showChoice, showItems, toItem } from "./files.js";
import { describeProgress, makeAnnouncer } from "./size.js";
import { showViewer } from "./viewer.js";

const find = (id) => document.getElementById(id);
const form = find("upload");
const live = find("live");
const announce = makeAnnouncer(live, "checked");
const views = { start: find("start"), run: find("run"), result: find("result") };
const alerts = { start: find("problem"), run: find("busy"), result: find("failed") };
const titles = { start: document.title, run: "Checking · tfod" };
// From a link, or since the user looked at the records.
const isLinked = () => location.hash.includes("record=");
let items = [];
let view = "start";
let total = 0;
let run = null; // the current check, repair or conversion
let isViewed = false; // whether the address may be that of a record of these items
let urls = [];

function show(name) {
  view = name;
  Object.entries(views).forEach(([other, element]) => {
    element.hidden = other !== name;
  });
  Object.values(alerts).forEach((element) => {
    element.textContent = "";
  });
  document.title = titles[name];
  if (name === "start") find("viewer").replaceChildren();
}

function say(text) {
  alerts[view].textContent = text;
  if (text) alerts[view].scrollIntoView({ block: "nearest" });
}

// Files

function setItems(changed) {
  items = changed;
  if (isViewed) history.replaceState(null, "", location.pathname + location.search);
  isViewed = false;
  showItems(find("chosen"), items, setItems, find("file"));
  say("");
}

function add(added) {
  if (view === "run") {
    say("A check is running. Stop it, or wait for its report, before you add files.");
    return;
  }
  if (!added.length) return;
  if (view === "result") startOver();
  setItems(addItems(items, added));
  find("send").focus();
}

async function drop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const read = async (entry) => ({ name: entry.name, files: await readFiles(entry) });
  try {
    add(await Promise.all(entries.map(read)));
  } catch (error) {
    say(`The browser could not read what you dropped (${error.message}). Choose it with a button.`);
  }
}

async function readFiles(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path: entry.fullPath.slice(1), file }];
  }
  const reader = entry.createReader();
  const files = [];
  for (;;) {
    // It returns a hundred entries at a time.
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return files;
    files.push(...(await Promise.all(entries.map(readFiles))).flat());
  }
}

function choose({ target }) {
  const files = [...target.files];
  target.value = ""; // so that the same file can be chosen again
  if (target.id === "file") {
    add(files.map(toItem));
  } else if (files.length) {
    const inside = files.map((file) => ({ path: file.webkitRelativePath, file }));
    add([{ name: inside[0].path.split("/", 1)[0], files: inside }]);
  }
}

async function tryExample({ target }) {
  if (!target.value) return;
  setItems([toItem(await checker.call("example", { name: target.value }))]);
  form.requestSubmit();
}

// The check

function check(event) {
  event.preventDefault();
  if (!items.length) {
    say("Choose or drop the files to check.");
    return;
  }
  const files = items.flatMap((item) => item.files);
  const labels = [...find("cvat_labels").files].map((file) => ({ path: file.name, file }));
  const fields = new FormData(form);
  const choices = { receiver: fields.get("for"), decode: fields.get("decode") || "auto" };
  if (fields.get("profile")) choices.profile = fields.get("profile");
  total = countBytes(items);
  start("Checked so far", "start", () => checker.call("check", { files, labels, choices }));
}

function change(event) {
  event.preventDefault();
  const { action } = event.target.dataset;
  const oddBoxes = new FormData(event.target).get("odd_boxes") || "";
  const doing = `${action === "convert" ? "Converting" : "Repairing"} and checking a copy`;
  total = 0; // the size of the copy is unknown
  start(doing, "result", () => checker.call("change", { action, oddBoxes }));
}

async function start(doing, before, call) {
  const current = {};
  run = current;
  find("viewer").replaceChildren();
  show("run");
  find("title").textContent = items.map((item) => item.name).join(", ");
  find("doing").textContent = "Loading the check";
  find("done-words").textContent = "";
  find("done").removeAttribute("value");
  find("stop").focus();
  let problem = "";
  try {
    await checker.ready;
    if (run !== current) return;
    current.hasBegun = true;
    find("doing").textContent = doing;
    live.textContent = "The check has started";
    const outcome = await call();
    if (run !== current) return;
    problem = outcome.problem;
    if (!problem) showReport(outcome);
  } catch (error) {
    if (run !== current) return;
    problem = explain(error);
    checker.restart(); // its memory is full, or in an unknown state
    before = "start"; // the new worker has no report
  }
  run = null;
  if (problem) {
    show(before);
    find(before === "start" ? "send" : "main").focus();
    say(problem);
  }
}

function showProgress({ bytes, records }) {
  if (!run?.hasBegun) return; // of a check that was stopped
  if (!find("viewer").firstChild) openViewer();
  const done = Math.min(bytes, total); // unpacked, these can be more
  find("done-words").textContent = describeProgress(done, total, records);
  if (total) {
    find("done").max = total;
    find("done").value = done;
    announce(done, total);
  }
}

function explain({ isMemory, text }) {
  const command = `run "tfod check ${items[0].name}" on this computer`;
  if (isMemory) return `The check needs more memory than the browser has for a page. Check fewer files, or ${command}.`;
  return `Internal error: ${text}. Try again; if it happens again, ${command}.`;
}

function stop() {
  if (run.hasBegun) checker.stop();
  run = null;
  show("start");
  find("send").focus();
  live.textContent = "The check was stopped";
}

function startOver() {
  show("start");
  setItems([]);
  find("file").focus();
}

// The viewer, which appears when the check begins

function openViewer() {
  const element = document.createElement("div");
  isViewed = true;
  find("viewer").replaceChildren(element);
  showViewer(element, async (name, values) => {
    if (!element.isConnected) return new Promise(() => {}); // it was closed
    const failed = (error) => ({ problem: explain(error) });
    const answer = await checker.call("ask", { name, values }).catch(failed);
    if (answer.problem) throw new Error(answer.problem);
    return answer;
  });
}

// The report

function showReport({ main, title, texts, zip }) {
  titles.result = title;
  show("result");
  urls.forEach((url) => URL.revokeObjectURL(url));
  find("report").innerHTML = main;
  const files = { ...texts, zip };
  urls = [...find("report").querySelectorAll("[data-file]")].map((link) => {
    link.href = URL.createObjectURL(new Blob([files[link.dataset.file]]));
    return link.href;
  });
  const hasRecords = find("report").querySelector("[href='#viewer']");
  if (!hasRecords) find("viewer").replaceChildren();
  live.textContent = title;
  if (!find("viewer").contains(document.activeElement)) find("main").focus({ preventScroll: true });
  if (isLinked()) find("viewer").scrollIntoView();
  else scrollTo(0, 0);
}

// The start

function watch(ready) {
  find("status").textContent = "Loading the check …";
  ready.then(
    () => {
      const more = isLinked() ? " Choose the files that this link is about, and check them." : "";
      find("status").textContent = `Ready. Your files stay on this computer.${more}`;
      find("try").hidden = false;
    },
    ({ text }) => {
      find("status").textContent = "";
      run = null;
      show("start");
      say(`The check could not be loaded: ${text.replace(/\.$/, "")}. Reload the page.`);
    },
  );
}

find("not-started").remove();
let checker;
if (!window.WebAssembly || !window.Worker) {
  find("status").textContent = "";
  find("send").disabled = true;
  say('This browser cannot check files, because it has no WebAssembly. Use another browser, or run "tfod check" on this computer.');
} else {
  checker = new Checker({ progress: showProgress, loading: watch });
}
onDrop(form.querySelector(".drop"), drop);
find("file").addEventListener("change", choose);
find("folder").addEventListener("change", choose);
find("try").addEventListener("click", tryExample);
form.addEventListener("submit", check);
find("options").addEventListener("toggle", showChoice);
find("stop").addEventListener("click", stop);
find("report").addEventListener("submit", change);
find("report").addEventListener("click", ({ target }) => {
  if (target.id === "again") startOver();
});
