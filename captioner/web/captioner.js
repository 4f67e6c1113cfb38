/* Captions for pictures, computed in the browser. A plain ES module without a build step; captioner.d.ts has its types.

     import { Captioner } from "./captioner.js";
     const captioner = await Captioner.load();
     console.log((await captioner.caption(file)).sentence);

   `Captioner.load` takes the model from the folder of this module. Pictures are not sent anywhere. */
import { LoadError, loadFiles, readSettings } from "./web_files.js";

// A sentence for the user: `kind` is "picture" (it has no caption), "option" (a wrong option) or "load" (the model).
class CaptionerError extends Error {
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }
}

const MOST_THREADS = 8; // more make one picture no faster
const START_SECONDS = 180; // for a slow phone
const WEBGPU_SECONDS = 30; // for its first captions, which compile its programs; then the processor takes over

const HAS_JSPI = "Suspending" in WebAssembly; // which the runtime for WebGPU needs

class Captioner {
  #worker;
  #pending = new Map();
  #last = 0;
  #closed = false;

  static async load({ folder = new URL("./", import.meta.url), webgpu, ...options } = {}) {
    try {
      const at = new URL(folder, globalThis.location?.href), settings = await readSettings(at);
      const { runtimes } = settings;
      if (runtimes.webgpu && (await hasWebGpu(webgpu))) {
        try {
          return await Captioner.#start(at, settings, runtimes.webgpu, { ...options, seconds: webgpu === true ? Infinity : WEBGPU_SECONDS });
        } catch (error) {
          if (error instanceof LoadError && error.path !== runtimes.webgpu.binary) throw error; // wasm needs that file too
        }
      }
      try {
        return await Captioner.#start(at, settings, runtimes.wasm, options);
      } catch (error) {
        if (!(error instanceof LoadError && error.path === runtimes.wasm.binary && runtimes.webgpu && HAS_JSPI)) throw error;
        // Without a network, the browser may have kept only the runtime for WebGPU, which works without WebGPU too.
        const other = { ...runtimes.webgpu, encoder_providers: ["wasm"], check: false };
        return await Captioner.#start(at, settings, other, options).catch((second) => {
          throw second instanceof LoadError ? error : second;
        });
      }
    } catch (error) {
      if (error instanceof LoadError) throw new CaptionerError(error.message, "load");
      throw error instanceof CaptionerError ? new CaptionerError(`The model can't be started: ${error.message}`, "load") : error;
    }
  }

  // Loads the files for one of the runtimes and starts it.
  static async #start(folder, settings, runtime, { onprogress, onloaded, threads = Infinity, seconds = START_SECONDS }) {
    const paths = [runtime.binary, ...settings.model_files], webgpu = runtime.encoder_providers.includes("webgpu");
    const files = await loadFiles(folder, settings.files, paths, onprogress);
    if (!webgpu) onloaded?.(); // WebGPU may still fail, and then the files for wasm are needed
    const cores = globalThis.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency ?? 1, MOST_THREADS) : 1;
    const engine = { webgpu, threads: Math.max(1, Math.min(threads, cores)) };
    const captioner = new Captioner(new URL("captioner_worker.js", folder));
    try {
      const argument = { settings, folder: folder.href, files, runtime, threads: engine.threads };
      const loading = captioner.#call("load", argument, [...files.values()].map(({ buffer }) => buffer));
      Object.assign(captioner, { model: await withinSeconds(loading, seconds), engine });
    } catch (error) {
      captioner.close();
      throw error;
    }
    if (webgpu) onloaded?.();
    return captioner;
  }

  // The worker is started from a blob, so that the policy of the page holds for it too.
  constructor(script) {
    const address = URL.createObjectURL(new Blob([`import ${JSON.stringify(script.href)};`], { type: "text/javascript" }));
    this.#worker = new Worker(address, { type: "module" });
    this.#worker.addEventListener("message", () => URL.revokeObjectURL(address), { once: true });
    this.#worker.addEventListener("message", ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.#pending.get(id);
      this.#pending.delete(id);
      if (error) reject(new CaptionerError(error.message, error.kind));
      else resolve(result);
    });
    this.#worker.addEventListener("error", (event) => this.#fail(event.message || "its script can't be loaded"));
  }

  #fail(message) {
    for (const { reject } of this.#pending.values()) reject(new CaptionerError(message, "defect"));
    this.#pending.clear();
  }

  #call(method, argument, transfer = []) {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw new CaptionerError("The captioner is closed.", "defect");
      const id = ++this.#last;
      this.#pending.set(id, { resolve, reject });
      this.#worker.postMessage({ id, method, argument }, transfer);
    });
  }

  // The caption of a File or Blob.
  caption(file, { name = file.name || "the picture", erase = [], longSide = 0, wordAlternatives = false, ...options } = {}) {
    return this.#call("caption", { file, name, options, erase, longSide, wordAlternatives });
  }

  // Captions of many pictures, one after another: { name, caption } or { name, error }.
  async *captions(files, options = {}) {
    for (const file of files) {
      const name = options.name ?? file.name ?? "the picture";
      try {
        yield { name, caption: await this.caption(file, options) };
      } catch (error) {
        if (error.kind !== "picture") throw error;
        yield { name, error };
      }
    }
  }

  close() {
    this.#closed = true;
    this.#worker.terminate();
    this.#fail("The captioner is closed.");
  }
}

// Whether to try WebGPU: it is there and, unless the caller insists, it is no emulation on the processor.
async function hasWebGpu(wanted) {
  if (wanted === false || !HAS_JSPI || !navigator.gpu) return false;
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  return Boolean(adapter) && (wanted === true || !(adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter));
}

async function withinSeconds(promise, seconds) {
  if (seconds === Infinity) return promise;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new CaptionerError(`it took longer than ${seconds} seconds`, "defect")), 1000 * seconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export { Captioner, CaptionerError };
