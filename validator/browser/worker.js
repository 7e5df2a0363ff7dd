// Runs tfod in Pyodide, in a worker, so that the page stays responsive. The page sends requests
// { id, method, ... }; each is answered by { id, result } or { id, problem }. FOLDER is
// the address of the page.
importScripts(FOLDER + "pyodide/pyodide.js");

const FILES = "/files";
const OTHERS = "/others"; // files that are not checked, such as the labels of a task
const MAX_AHEAD = 4 << 20;
let python;
let checker;

const methods = {
  // Loads everything, so that no request is needed later.
  async load() {
    const listed = await (await fetch(FOLDER + "packages.json")).json();
    const [loaded, ...wheels] = await Promise.all([
      loadPyodide({ indexURL: FOLDER + "pyodide/", packages: listed.packages }),
      ...listed.wheels.map(async (name) => (await fetch(FOLDER + name)).arrayBuffer()),
    ]);
    python = loaded;
    const extractDir = python.runPython("import site; site.getsitepackages()[0]");
    wheels.forEach((wheel) => python.unpackArchive(wheel, "wheel", { extractDir }));
    checker = python.pyimport("tfod_validator.browser").Checker();
    python.FS.mkdir(FILES);
    python.FS.mkdir(OTHERS);
    setTimeout(() => checker.prepare()); // after the answer
    replaceRead(python.FS);
  },

  async check({ files, labels, choices }) {
    mount(FILES, files);
    mount(OTHERS, labels);
    const paths = labels.length ? { cvat_labels: `${OTHERS}/${labels[0].path}` } : {};
    return finish(await checker.check(FILES, JSON.stringify({ ...choices, ...paths }), progress));
  },

  async change({ action, oddBoxes }) {
    return finish(await checker.change(action, oddBoxes, progress));
  },

  ask: ({ name, values }) => JSON.parse(checker.ask(name, JSON.stringify(values))),
  stop: () => checker.stop(),

  example({ name }) {
    const path = checker.find_example(name);
    return new File([python.FS.readFile(path)], path.split("/").pop());
  },
};

// Pyodide waits forever for some of its files if they cannot be loaded.
const request = fetch;
self.fetch = async (address, ...options) => {
  const name = String(address).replace(FOLDER, "");
  try {
    const response = await request(address, ...options);
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    return response;
  } catch (error) {
    postMessage({ end: { text: `${name}: ${error.message}` } });
    throw error;
  }
};

// Files are not copied: WORKERFS reads the parts that are needed.
function mount(folder, files) {
  const { FS } = python;
  if (FS.lookupPath(folder).node.mount.mountpoint === folder) FS.unmount(folder);
  const blobs = files.map(({ path, file }) => ({ name: path, data: file }));
  FS.mount(FS.filesystems.WORKERFS, { blobs }, folder);
}

// Reads ahead in parts that grow, since small ones take ten times as long. A file cannot be read if it
// changed after it was chosen: this becomes an OSError, and not the end of Python.
function replaceRead({ ErrnoError, filesystems: { WORKERFS } }) {
  const reader = new FileReaderSync();
  WORKERFS.stream_ops.read = (stream, buffer, offset, length, position) => {
    const { contents, size } = stream.node;
    let { start, bytes } = stream.ahead ?? { start: 0, bytes: new Uint8Array() };
    const end = start + bytes.length;
    if (position < start || Math.min(position + length, size) > end) {
      const ahead = position <= end && position > start ? Math.min(2 * bytes.length, MAX_AHEAD) : 0;
      start = position;
      try {
        const part = contents.slice(start, start + Math.max(length, ahead));
        bytes = new Uint8Array(reader.readAsArrayBuffer(part));
      } catch {
        throw new ErrnoError(29); // EIO
      }
      stream.ahead = { start, bytes };
    }
    const part = bytes.subarray(position - start, position - start + length);
    buffer.set(part, offset);
    return part.length;
  };
}

function progress(bytes, records) {
  postMessage({ progress: { bytes, records } });
}

function finish(text) {
  const outcome = JSON.parse(text);
  if (outcome.zip) outcome.zip = new Blob([python.FS.readFile(outcome.zip)]);
  return outcome;
}

// The text of an exception of Python is a traceback; a line at its end has its type.
function explain(error) {
  const text = String(error?.message ?? error).trim();
  const isMemory = error instanceof RangeError || /MemoryError|out of memory/i.test(text);
  const lines = text.split("\n").reverse();
  return { isMemory, text: lines.find((line) => /^[\w.]+(Error|Exception)\b/.test(line)) ?? lines[0] };
}

// If Python ends, for example because a copy is too large, no request is answered.
addEventListener("error", ({ error }) => postMessage({ end: explain(error) }));
addEventListener("unhandledrejection", ({ reason }) => postMessage({ end: explain(reason) }));

onmessage = async ({ data: { id, method, ...values } }) => {
  try {
    postMessage({ id, result: await methods[method](values) });
  } catch (error) {
    console.error(error);
    postMessage({ id, problem: explain(error) });
  }
};
