// node in_node.cjs BROWSER WHEELS CODE FOLDER...: runs Python code in the Pyodide of the page in BROWSER,
// with the page's wheels and those in WHEELS. The code can access these folders of the machine.
const fs = require("node:fs");
const path = require("node:path");

const [browser, more, code, ...folders] = process.argv.slice(2);
const { loadPyodide } = require(path.join(browser, "pyodide", "pyodide.js"));

async function main() {
  const listed = JSON.parse(fs.readFileSync(path.join(browser, "packages.json")));
  const python = await loadPyodide({
    indexURL: path.join(browser, "pyodide") + path.sep,
    packages: listed.packages,
    env: { HOME: "/home/pyodide", HYPOTHESIS_PROFILE: "few" },
  });
  const wheels = [
    ...listed.wheels.map((name) => path.join(browser, name)),
    ...fs.readdirSync(more).map((name) => path.join(more, name)),
  ];
  const extractDir = python.runPython("import site; site.getsitepackages()[0]");
  for (const wheel of wheels) {
    python.unpackArchive(new Uint8Array(fs.readFileSync(wheel)), "wheel", { extractDir });
  }
  for (const root of folders) {
    python.FS.mkdirTree(root);
    python.FS.mount(python.FS.filesystems.NODEFS, { root }, root);
  }
  python.runPython(code);
}

main().catch((error) => {
  console.error(error.message); // the stack contains the source of Pyodide
  process.exitCode = 1;
});
