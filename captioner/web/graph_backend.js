/* A model run by onnxruntime-web: the three graphs that captioner/inference/onnx_backend.py describes, for one picture
   with K hypotheses. The weights are in model.safetensors, mostly as 16-bit floats; onnxruntime widens them when it
   loads a graph. */

class GraphBackend {
  // `ort` is onnxruntime-web. `files` are bytes by their names in the folder of the model.
  static async load(ort, manifest, files, vocabularySize, encoderProviders = ["wasm"]) {
    const backend = new GraphBackend();
    const { encoder } = manifest;
    Object.assign(backend, { ort, vocabularySize, size: encoder.image_size, rows: encoder.rows, cols: encoder.cols });
    backend.hard = manifest.attention === "hard";
    backend.encoder = await session(ort, files, encoder.file, encoderProviders);
    backend.beginning = await session(ort, files, "begin.onnx", ["wasm"]);
    backend.decoder = await session(ort, files, "decoder.onnx", ["wasm"]);
    return backend;
  }

  // The annotations of a picture: RGB of the model's square.
  async encode(pixels) {
    const { size } = this;
    const { annotations } = await this.encoder.run({ pixels: new this.ort.Tensor("uint8", pixels, [1, size, size, 3]) });
    return annotations;
  }

  async begin(annotations, hardAttention) {
    const outputs = await this.beginning.run({ annotations });
    const state = { shared: {}, own: {}, chosen: this.hard && hardAttention === "argmax" };
    for (const [name, tensor] of Object.entries(outputs)) {
      const [kind, ...rest] = name.split(".");
      state[kind][rest.join(".")] = tensor;
    }
    return state;
  }

  // One step after these words, one per hypothesis. Arrays have one entry per hypothesis.
  async step(state, words) {
    const { ort } = this, k = words.length, cells = this.rows * this.cols;
    const feeds = { words: new ort.Tensor("int64", BigInt64Array.from(words, BigInt), [1, k]) };
    for (const [name, tensor] of Object.entries(state.shared)) feeds[`shared.${name}`] = tensor;
    for (const [name, tensor] of Object.entries(state.own)) feeds[`own.${name}`] = tensor;
    if (this.hard) {
      feeds.chosen = new ort.Tensor("float32", Float32Array.of(state.chosen ? 1 : 0), []);
      feeds.noise = new ort.Tensor("float32", new Float32Array(k * cells), [1, k, cells]);
    }
    const outputs = await this.decoder.run(feeds);
    const own = {};
    for (const [name, tensor] of Object.entries(outputs)) if (name.startsWith("next.")) own[name.slice(5)] = tensor;
    return {
      scores: rowsOf(outputs.log_probabilities, k, this.vocabularySize),
      alphas: rowsOf(outputs.alpha, k, cells),
      gates: [...outputs.gate.data],
      cells: state.chosen ? [...outputs.place.data].map((cell) => [Math.floor(Number(cell) / this.cols), Number(cell) % this.cols]) : null,
      state: { ...state, own },
    };
  }

  // The state in which hypothesis k continues hypothesis parents[k].
  select(state, parents) {
    const own = Object.fromEntries(Object.entries(state.own).map(([name, tensor]) => {
      const [, k, ...rest] = tensor.dims, length = tensor.data.length / k;
      const data = new tensor.data.constructor(parents.length * length);
      parents.forEach((parent, slot) => data.set(tensor.data.subarray(parent * length, (parent + 1) * length), slot * length));
      return [name, new this.ort.Tensor(tensor.type, data, [1, parents.length, ...rest])];
    }));
    return { ...state, own };
  }
}

function rowsOf(tensor, k, length) {
  if (tensor.data.length !== k * length) throw new Error("the model computed other shapes than its manifest says; it is damaged");
  return Array.from({ length: k }, (_, i) => tensor.data.slice(i * length, (i + 1) * length));
}

// A loaded graph. Its weights, if it has any outside, are in the file beside it.
function session(ort, files, name, executionProviders) {
  const folder = name.slice(0, name.lastIndexOf("/") + 1), weights = files.get(`${folder}model.safetensors`);
  const externalData = weights ? [{ path: "model.safetensors", data: weights }] : undefined;
  return ort.InferenceSession.create(files.get(name), { executionProviders, externalData, logSeverityLevel: 3 });
}

export { GraphBackend };
