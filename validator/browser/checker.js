// The worker that checks: calls to it, and a new worker if it fails or does not stop.
const MILLISECONDS_TO_STOP = 1000;
// The policy of the page holds in a worker from a Blob, but not in one from a URL.
const folder = JSON.stringify(new URL(".", document.baseURI));
const code = new Blob([`const FOLDER = ${folder}; importScripts(FOLDER + "worker.js");`]);
const script = URL.createObjectURL(code);

export class Checker {
  // The handlers are called with the progress of a check, and with the promise of each new worker.
  constructor(handlers) {
    this.handlers = handlers;
    this.#start();
  }

  #start() {
    this.last = 0;
    this.calls = new Map();
    this.worker = new Worker(script);
    this.worker.onmessage = ({ data }) => {
      if (data.progress) this.handlers.progress(data.progress);
      else if (data.end) this.#end(data.end);
      else this.#settle(data);
    };
    this.worker.onerror = (event) => this.#end({ text: event.message || "worker.js: not found" });
    this.ready = this.call("load");
    this.handlers.loading(this.ready);
  }

  #end(problem) {
    this.calls.forEach((_, id) => this.#settle({ id, problem }));
  }

  #settle({ id, result, problem }) {
    const { resolve, reject } = this.calls.get(id) ?? {};
    this.calls.delete(id);
    if (problem) reject?.(problem);
    else resolve?.(result);
  }

  // Returns the result, or rejects with { isMemory, text }.
  call(method, values) {
    return new Promise((resolve, reject) => {
      this.last += 1;
      this.calls.set(this.last, { resolve, reject });
      this.worker.postMessage({ id: this.last, method, ...values });
    });
  }

  restart() {
    this.worker.terminate();
    this.#end({ text: "stopped" });
    this.#start();
  }

  // Stops the check, usually between two batches of records. `ready` waits for this.
  stop() {
    const stopped = this.call("stop").then(() => true);
    const timeout = new Promise((resolve) => {
      setTimeout(resolve, MILLISECONDS_TO_STOP);
    });
    this.ready = Promise.race([stopped, timeout]).then((isStopped) => {
      if (isStopped) return undefined;
      this.restart();
      return this.ready;
    });
  }
}
