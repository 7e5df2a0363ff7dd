// Shows the records of tfod.viewer.session one at a time, with an index and filters. `ask(method,
// arguments)` returns a promise of the answer. Only the cards of answers are HTML, which is escaped.
const PART = 50; // records in the list
const CACHED = 40;
const POLL = 400; // milliseconds
const FILTERS = { class: "class_name", subset: "subset", rule: "rule" }; // in the address, and of the session
const MARKUP = `
<section class="stage" aria-labelledby="viewer-title">
  <div class="bar">
    <h2 id="viewer-title">Records</h2><p class="rest place"></p>
    <span class="moves"><button type="button" data-move="-1"><span aria-hidden="true">← </span>Previous</button>
    <button type="button" data-move="1">Next<span aria-hidden="true"> →</span></button></span>
    <form><label class="shard" hidden>Shard <select name="shard"></select></label>
    <label>Record <input name="record" type="number" min="0" max="${Number.MAX_SAFE_INTEGER}" required></label> <button>Show</button></form>
  </div>
  <p class="problem" role="alert"></p>
  <div class="shown" aria-busy="true"><p class="rest">Reading the first record</p></div>
</section>
<section class="index" aria-labelledby="viewer-index">
  <h2 id="viewer-index">Index</h2>
  <p class="rest state"></p>
  <label>Finding <select name="rule"></select></label>
  <label>Class <select name="class"></select></label>
  <label>Subset <select name="subset"></select></label>
  <ol></ol>
  <p class="bar part"><button type="button" data-part="-1" disabled>Earlier</button> <span></span> <button type="button" data-part="1" disabled>Later</button></p>
  <p class="rest">The arrow keys ← and → show the previous and the next record.</p>
</section>
<p class="unseen" role="status"></p>`;

export function showViewer(element, ask) {
  element.classList.add("viewer");
  element.innerHTML = MARKUP;
  const find = (selector) => element.querySelector(selector);
  const shown = find(".shown");
  const form = find("form");
  const selects = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, find(`.index [name=${name}]`)]));
  const cards = new Map();
  let names = [];
  let filters = {};
  let current = { shard: 0, number: 0 };
  let list = { total: 0, start: 0, rows: [], position: 0, is_match: false };
  let known = { version: 0, records: -1, findings: 0, complete: false, classes: [], subsets: [], rules: [] };
  let isShown = false;
  let listed = Promise.resolve();
  let moved = Promise.resolve();
  let waiting = 0;
  let request = 0;

  const isSame = (row) => row.shard === current.shard && row.number === current.number;
  const title = (row) => row.name || `record ${row.number}`;

  function say(text) {
    find("[role=status]").textContent = text;
  }

  function report(error) {
    find(".problem").textContent = error.message;
  }

  // The address

  function format(row) {
    const values = { record: row.number, shard: names.length > 1 ? names[row.shard] : undefined, ...filters };
    const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
    return `#${new URLSearchParams(pairs)}`;
  }

  function readAddress() {
    if (!location.hash.includes("=")) return false; // a link inside of the page
    const values = new URLSearchParams(location.hash.slice(1));
    filters = {};
    for (const name of Object.keys(FILTERS)) if (values.get(name)) filters[name] = values.get(name);
    const number = Number(values.get("record") ?? NaN);
    const shard = values.has("shard") ? names.indexOf(values.get("shard")) : 0; // -1 is no shard
    if (Number.isSafeInteger(number) && number >= 0) current = { shard, number };
    return values.has("record");
  }

  // Records

  function load({ shard, number }) {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = Math.round(shown.clientWidth / rem);
    const key = `${shard}/${number}/${width}`;
    if (!cards.has(key)) {
      const card = ask("record", { shard, number, width });
      card.catch(() => cards.delete(key));
      cards.set(key, card);
      if (cards.size > CACHED) cards.delete(cards.keys().next().value);
    }
    return cards.get(key);
  }

  async function show(row) {
    const mine = ++request;
    current = { shard: row.shard, number: row.number };
    find("#viewer-title").textContent = `Record ${row.number}`;
    shown.setAttribute("aria-busy", "true");
    try {
      const card = await load(row);
      if (mine !== request) return;
      shown.innerHTML = card.html;
      isShown = true;
      find(".problem").textContent = "";
    } catch (error) {
      if (mine !== request) return;
      isShown = false;
      shown.replaceChildren();
      report(error);
    }
    shown.setAttribute("aria-busy", "false");
    form.record.value = row.number;
    form.shard.value = row.shard;
  }

  function choices() {
    return Object.fromEntries(Object.entries(filters).map(([name, value]) => [FILTERS[name], value]));
  }

  // One after the other, so that no answer for other filters comes late.
  function refresh(part) {
    listed = listed.then(async () => {
      try {
        list = await ask("select", { ...choices(), ...current, count: PART, ...part });
        showList();
      } catch (error) {
        report(error);
      }
    });
    return listed;
  }

  // The position of the record before or after the shown one, which may not match the filters.
  function target(step) {
    return list.position + (list.is_match || step < 0 ? step : 0);
  }

  const neighbour = (step) => list.rows[target(step) - list.start];

  function move(step, isRepeated) {
    if (isRepeated && waiting) return; // the key is held down
    waiting += 1;
    moved = moved.then(() => moveNow(step)).finally(() => {
      waiting -= 1;
    });
  }

  async function moveNow(step) {
    if (!neighbour(step)) await refresh({ start: Math.floor(Math.max(0, target(step)) / PART) * PART });
    const row = neighbour(step);
    if (row) await go(row);
    else say(step > 0 ? "This is the last record" : "This is the first record");
  }

  async function go(row) {
    await show(row);
    history.replaceState(null, "", format(row));
    const index = list.rows.findIndex(isSame);
    if (index < 0) await refresh();
    else list = { ...list, position: list.start + index, is_match: true };
    showList();
    if (!isShown) return;
    prefetch();
    const tags = new Set([...shown.querySelectorAll(".lines .tag")].map((tag) => tag.textContent));
    say([shown.querySelector(".name").textContent || title(row), ...tags].join(", "));
  }

  function prefetch() {
    for (const next of [neighbour(1), neighbour(-1)]) if (next) load(next).catch(() => {}); // reported when it is shown
  }

  async function filter() {
    filters = {};
    for (const [name, select] of Object.entries(selects)) if (select.value) filters[name] = select.value;
    await refresh();
    const first = list.is_match ? current : neighbour(1) || list.rows[0];
    if (first) await go(first);
    else history.replaceState(null, "", format(current));
    say(`${list.total.toLocaleString("en")} records match`);
  }

  // The index

  function line(row) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const name = document.createElement("bdi");
    link.href = format(row);
    if (isSame(row)) link.setAttribute("aria-current", "true");
    name.textContent = title(row);
    link.append(name);
    if (row.severity) {
      const tag = document.createElement("span");
      tag.className = `tag ${row.severity}`;
      tag.textContent = row.severity;
      link.append(" ", tag);
    }
    item.append(link);
    item.value = row.number;
    return item;
  }

  function showList() {
    const { total, start, rows } = list;
    find("ol").replaceChildren(...rows.map(line));
    find("ol").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", container: "nearest" });
    const range = rows.length ? `${(start + 1).toLocaleString("en")} to ${(start + rows.length).toLocaleString("en")} of ` : "";
    find(".part span").textContent = total ? range + total.toLocaleString("en") : "No record matches";
    const isActive = { "-1": start > 0, 1: start + rows.length < total };
    for (const button of element.querySelectorAll("[data-part]")) button.disabled = !isActive[button.dataset.part];
    const place = list.is_match ? `${(list.position + 1).toLocaleString("en")} of ` : "not among the ";
    find(".place").textContent = place + total.toLocaleString("en");
    for (const button of element.querySelectorAll("[data-move]")) {
      const position = target(Number(button.dataset.move));
      button.setAttribute("aria-disabled", String(position < 0 || position >= total));
    }
  }

  function fill(name, options) {
    const select = selects[name];
    if (select === document.activeElement) return; // it may be open
    const value = filters[name] || "";
    if (value && !options.some((option) => option[0] === value)) options.push([value, `${value} (0 records)`]);
    const all = [["", name === "rule" ? "with or without" : "any"], ...options];
    select.replaceChildren(...all.map(([key, text]) => new Option(text, key, false, key === value)));
    select.closest("label").hidden = all.length < 2 || (name === "subset" && all.length < 3);
  }

  function fillFilters() {
    // Other numbers of a report are those of objects and findings.
    const count = ({ records, has_more }) => `(${records.toLocaleString("en")}${has_more ? " or more" : ""} ${records === 1 ? "record" : "records"})`;
    const plain = (list) => list.map((entry) => [entry.name, `${entry.name} ${count(entry)}`]);
    fill("class", plain(known.classes));
    fill("subset", plain(known.subsets));
    const rules = known.rules.map((rule) => [rule.code, `${rule.code} ${rule.title} ${count(rule)}`]);
    fill("rule", rules.length > 1 ? [["any", "any finding"], ...rules] : rules);
  }

  function showState({ complete, problem, read, size, records, others }) {
    const percent = size ? `${Math.min(99, Math.floor((read / size) * 100))} percent` : `${records.toLocaleString("en")} records`;
    const more = others ? ` Findings that are not about a record: ${others.toLocaleString("en")}. See the report of tfod check.` : "";
    find(".state").textContent = problem || (complete ? `All records are checked.${more}` : `Checked so far: ${percent}`);
  }

  async function poll() {
    const before = known;
    const asked = { ...current };
    try {
      known = await ask("overview", asked);
    } catch (error) {
      find(".state").textContent = error.message;
      setTimeout(poll, 5 * POLL);
      return;
    }
    showState(known);
    fillFilters();
    if (known.version !== before.version) cards.clear();
    const isUnread = !isShown && known.records !== before.records;
    if (isSame(asked) && (isUnread || known.findings !== before.findings || (isShown && known.complete))) {
      await show(current);
    }
    if (known.version !== before.version || known.records !== before.records) await refresh({ start: isShown ? list.start : undefined });
    if (known.complete) prefetch();
    else setTimeout(poll, POLL);
  }

  // Events

  element.addEventListener("click", (event) => {
    const button = event.target.closest("[data-move], [data-part]");
    if (button?.dataset.move) move(Number(button.dataset.move));
    if (button?.dataset.part) refresh({ start: Math.max(0, list.start + PART * Number(button.dataset.part)) });
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go({ shard: Number(form.shard.value) || 0, number: Number(form.record.value) });
  });
  for (const select of Object.values(selects)) {
    select.addEventListener("change", filter);
    select.addEventListener("blur", fillFilters);
  }
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const isElsewhere = event.target.closest?.("input, select, textarea") || !shown.getClientRects().length;
    if (!step || isElsewhere || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    move(step, event.repeat);
  });
  window.addEventListener("hashchange", async () => {
    if (!element.isConnected || !location.hash.includes("=")) return;
    const hasRecord = readAddress();
    fillFilters();
    await refresh();
    if (hasRecord) await go(current);
  });

  async function start() {
    ({ names } = await ask("shards", {}));
    form.shard.replaceChildren(...names.map((name, number) => new Option(name, number)));
    find(".shard").hidden = names.length < 2;
    const hasRecord = readAddress();
    await show(current);
    await poll();
    if (!hasRecord && Object.keys(filters).length && list.rows[0]) await go(list.rows[0]);
  }

  start().catch(report);
}
