// Drag and drop, and the list of chosen files. An item is a file, or a folder with its files:
// { name, files: [{ path, file }] }.
import { size } from "./size.js";

const live = document.getElementById("live");

export function toItem(file) {
  return { name: file.name, files: [{ path: file.name, file }] };
}

export function countBytes(items) {
  return items.flatMap((item) => item.files).reduce((sum, { file }) => sum + file.size, 0);
}

// Adds items. Those with the same names are replaced.
export function addItems(items, added) {
  live.textContent = `${added.length === 1 ? added[0].name : `${added.length} files`} added`;
  return [...new Map([...items, ...added].map((item) => [item.name, item])).values()];
}

// Shows items; change is called with those that remain after one was removed.
export function showItems(list, items, change, input) {
  const lines = items.map((item, number) => {
    const [line, remove] = makeLine(item);
    remove.addEventListener("click", () => {
      change(items.filter((other) => other !== item));
      (list.querySelectorAll("button")[number] || list.querySelector("button") || input).focus();
      live.textContent = `${item.name} removed`;
    });
    return line;
  });
  list.replaceChildren(...lines);
  list.hidden = items.length === 0;
}

function makeLine(item) {
  const line = document.createElement("li");
  const name = document.createElement("bdi");
  name.textContent = item.name;
  const length = document.createElement("span");
  length.className = "rest";
  const count = item.files.length;
  const files = `${count.toLocaleString("en")} ${count === 1 ? "file" : "files"}`;
  const isFolder = item.files[0]?.path !== item.name;
  length.textContent = (isFolder ? `folder with ${files}, ` : "") + size(countBytes([item]));
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "plain";
  remove.textContent = "Remove";
  remove.setAttribute("aria-label", `Remove ${item.name}`);
  line.append(name, length, remove);
  return [line, remove];
}

// Calls receive with what is dropped anywhere on the page; the zone is highlighted.
export function onDrop(zone, receive) {
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    if (event.dataTransfer) receive(event.dataTransfer);
  });
}

// Moves the selected program out of the folded options, so that it stays visible and accessible with
// the keyboard.
export function showChoice() {
  const options = document.getElementById("options");
  const choice = options.querySelector("[name=for]:checked");
  if (choice && !options.open) document.getElementById("first").append(choice.closest("label"));
}
