// For the upload page: drag and drop, a check of the size before the upload, and a progress bar.
// Without this script, the browser submits the plain form.
import { size } from "./size.js";

const form = document.getElementById("upload");
const input = document.getElementById("file");
const zone = form.querySelector(".drop");
const chosen = document.getElementById("chosen");
const problem = document.getElementById("problem");
const sending = document.getElementById("sending");
const bar = document.getElementById("sent");
const live = document.getElementById("live");
const maxBytes = Number(form.dataset.maxBytes);
const maxFiles = Number(form.dataset.maxFiles);
let upload = null;

function say(text) {
  problem.textContent = text;
}

// Files

function setFiles(files) {
  const transfer = new DataTransfer();
  files.forEach((file) => transfer.items.add(file));
  input.files = transfer.files;
  showFiles();
}

function showFiles() {
  const files = [...input.files];
  chosen.replaceChildren(...files.map((file, number) => line(file, number)));
  chosen.hidden = files.length === 0;
  say(findProblem());
}

function line(file, number) {
  const item = document.createElement("li");
  const name = document.createElement("bdi");
  name.textContent = file.name;
  const length = document.createElement("span");
  length.className = "rest";
  length.textContent = size(file.size);
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "plain";
  remove.textContent = "Remove";
  remove.setAttribute("aria-label", `Remove ${file.name}`);
  remove.addEventListener("click", () => {
    setFiles([...input.files].filter((_, other) => other !== number));
    (chosen.querySelectorAll("button")[number] || chosen.querySelector("button") || input).focus();
    live.textContent = `${file.name} removed`;
  });
  item.append(name, length, remove);
  return item;
}

function findProblem() {
  const files = [...form.querySelectorAll("input[type=file]")].flatMap((input) => [...input.files]);
  const total = files.reduce((sum, file) => sum + file.size, 0);
  if (files.length > maxFiles) {
    return `You chose ${files.length} files, but the limit is ${maxFiles}. Put them into a zip.`;
  }
  if (total > maxBytes) {
    return `Your files have ${size(total)}, but the limit is ${size(maxBytes)}. Check them in parts, or run "tfod check" on your own machine.`;
  }
  return "";
}

function drop(event) {
  event.preventDefault();
  zone.classList.remove("over");
  if (upload || !event.dataTransfer) return;
  const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
  if (items.some((item) => item.webkitGetAsEntry?.()?.isDirectory)) {
    say("You cannot drop a folder here. Drop its files, or a zip of them.");
    return;
  }
  const dropped = [...event.dataTransfer.files];
  if (!dropped.length) return;
  const isReplaced = (file) => dropped.some((other) => other.name === file.name);
  setFiles([...[...input.files].filter((file) => !isReplaced(file)), ...dropped]);
  live.textContent = `${dropped.length === 1 ? dropped[0].name : `${dropped.length} files`} added`;
  document.getElementById("send").focus();
}

// Moves the selected program out of the folded options, so that it stays visible and accessible with
// the keyboard.
function showChoice() {
  const options = document.getElementById("options");
  const choice = options.querySelector("[name=for]:checked");
  if (choice && !options.open) document.getElementById("first").append(choice.closest("label"));
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

let announced = 0;

function showSent(event) {
  if (!event.lengthComputable) return;
  const words = document.getElementById("sent-words");
  bar.max = event.total;
  bar.value = event.loaded;
  words.textContent =
    event.loaded < event.total
      ? `${size(event.loaded)} of ${size(event.total)}`
      : "Upload complete, waiting for the response";
  // Announce each quarter to screen readers.
  const quarter = Math.floor((event.loaded / event.total) * 4);
  if (quarter > announced && quarter < 4) live.textContent = `${quarter * 25} percent uploaded`;
  announced = quarter;
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
  announced = 0;
  bar.removeAttribute("value");
  document.getElementById("sent-words").textContent = "";
  sending.hidden = !busy;
  document.getElementById("send").hidden = busy;
  form.querySelectorAll("input, select, #chosen button").forEach((element) => {
    element.disabled = busy;
  });
}

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  if (!upload) zone.classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) zone.classList.remove("over");
});
document.addEventListener("drop", drop);
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
