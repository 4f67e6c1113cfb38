// SHA-256 of bytes as hexadecimal text. Browsers offer it to pages on localhost and over HTTPS only; other pages compute it
// here, so that a model is verified there too.

async function sha256(bytes) {
  const digest = globalThis.crypto?.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)) : computed(bytes);
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const firstPrimes = (count) => {
  const primes = [];
  for (let n = 2; primes.length < count; n++) if (primes.every((p) => n % p)) primes.push(n);
  return primes;
};
const fraction = (value) => ((value - Math.floor(value)) * 2 ** 32) | 0; // the first 32 bits after the point
const START = firstPrimes(8).map((p) => fraction(Math.sqrt(p)));
const ROUND = Int32Array.from(firstPrimes(64), (p) => fraction(Math.cbrt(p)));
const turn = (x, n) => (x >>> n) | (x << (32 - n));

function computed(bytes) {
  const state = Int32Array.from(START), words = new Int32Array(64);
  const whole = bytes.length - (bytes.length % 64);
  const rest = new Uint8Array(bytes.length % 64 < 56 ? 64 : 128); // the last bytes, a one, zeros, and the length in bits
  rest.set(bytes.subarray(whole));
  rest[bytes.length % 64] = 0x80;
  new DataView(rest.buffer).setBigUint64(rest.length - 8, BigInt(bytes.length) * 8n);
  for (const [data, end] of [[bytes, whole], [rest, rest.length]]) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    for (let at = 0; at < end; at += 64) addBlock(state, words, view, at);
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => digest.setInt32(4 * i, value));
  return new Uint8Array(digest.buffer);
}

function addBlock(state, words, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = words[i - 15], y = words[i - 2];
    words[i] = (words[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + words[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10))) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[i] + words[i]) | 0;
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
}

export { sha256 };
