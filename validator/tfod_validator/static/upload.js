// For the upload page: drag and drop, a check of the size before the upload, and a progress bar.
// Without this script, the browser submits the plain form.
import { addItems, countBytes, onDrop, showChoice, showItems, toItem } from "./files.js";
import { makeAnnouncer, size } from "./size.js";

const form = document.getElementById("upload");
const input = document.getElementById("file");
const zone = form.querySelector(".drop");
const chosen = document.getElementById("chosen");
const problem = document.getElementById("problem");
const sending = document.getElementById("sending");
const bar = document.getElementById("sent");
const live = document.getElementById("live");
const announce = makeAnnouncer(live, "uploaded");
const maxBytes = Number(form.dataset.maxBytes);
const maxFiles = Number(form.dataset.maxFiles);
let upload = null;

function say(text) {
  problem.textContent = text;
}

// Files

function setItems(items) {
  const transfer = new DataTransfer();
  items.forEach((item) => transfer.items.add(item.files[0].file));
  input.files = transfer.files;
  showFiles();
}

function getItems() {
  return [...input.files].map(toItem);
}

function showFiles() {
  showItems(chosen, getItems(), setItems, input);
  say(findProblem());
}

function findProblem() {
  const files = [...form.querySelectorAll("input[type=file]")].flatMap((input) => [...input.files]);
  const total = countBytes(files.map(toItem));
  if (files.length > maxFiles) {
    return `You chose ${files.length} files, but the limit is ${maxFiles}. Put them into a zip.`;
  }
  if (total > maxBytes) {
    return `Your files have ${size(total)}, but the limit is ${size(maxBytes)}. Check them in parts, or run "tfod check" on your own machine.`;
  }
  return "";
}

function drop(transfer) {
  if (upload) return;
  const items = [...transfer.items].filter((item) => item.kind === "file");
  if (items.some((item) => item.webkitGetAsEntry?.()?.isDirectory)) {
    say("You cannot drop a folder here. Drop its files, or a zip of them.");
    return;
  }
  if (!transfer.files.length) return;
  setItems(addItems(getItems(), [...transfer.files].map(toItem)));
  document.getElementById("send").focus();
}

// Sending

function send(event) {
  event.preventDefault();
  const text = findProblem();
  say(text);
  if (text || upload) return;
  upload = new XMLHttpRequest();
  upload.open("POST", form.dataset.api);
  upload.setRequestHeader("Accept", "application/json");
  upload.responseType = "json";
  upload.upload.addEventListener("progress", showSent);
  upload.addEventListener("load", arrived);
  upload.addEventListener("error", () => fail("The connection was lost during the upload. Try again."));
  upload.addEventListener("abort", () => fail("The upload was cancelled."));
  const data = new FormData(form);
  setBusy(true);
  live.textContent = "Uploading";
  upload.send(data);
  document.getElementById("cancel").focus();
}

function showSent(event) {
  if (!event.lengthComputable) return;
  const words = document.getElementById("sent-words");
  bar.max = event.total;
  bar.value = event.loaded;
  words.textContent =
    event.loaded < event.total
      ? `${size(event.loaded)} of ${size(event.total)}`
      : "Upload complete, waiting for the response";
  announce(event.loaded, event.total);
}

function arrived() {
  const response = upload.response;
  if (upload.status === 202 && response) {
    location.assign(`${response.links.page}?token=${response.token}`);
  } else if (upload.status === 401) {
    location.reload();
  } else {
    fail(response?.detail || `The service returned the status ${upload.status}. Try again later.`);
  }
}

function fail(text) {
  setBusy(false);
  live.textContent = "";
  say(text);
  document.getElementById("send").focus();
}

function setBusy(busy) {
  if (!busy) upload = null;
  bar.removeAttribute("value");
  document.getElementById("sent-words").textContent = "";
  sending.hidden = !busy;
  document.getElementById("send").hidden = busy;
  form.querySelectorAll("input, select, #chosen button").forEach((element) => {
    element.disabled = busy;
  });
}

onDrop(zone, drop);
form.addEventListener("change", showFiles);
document.getElementById("options").addEventListener("toggle", showChoice);
form.addEventListener("submit", send);
document.getElementById("cancel").addEventListener("click", () => upload?.abort());
window.addEventListener("pageshow", () => {
  // After returning with the back button of the browser.
  setBusy(false);
  showFiles();
  showChoice();
});
