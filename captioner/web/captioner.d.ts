/** Captions for pictures, computed in the browser. Pictures are not sent anywhere. */

/** The options of a search. Those that are not given have the model's own values. */
export interface SearchOptions {
  /** Beam width: hypotheses kept per picture. 1 is greedy search. */
  beam?: number;
  /** Captions per picture, best first. */
  nBest?: number;
  /** Length normalization: score = log-probability / length ** power. */
  lengthPower?: number;
  /** Fewest words of a caption. */
  minLength?: number;
  /** Most words of a caption. */
  maxLength?: number;
  /** Words that must not occur. */
  forbidden?: string | string[];
  /** Words that must occur. "ball|frisbee" and ["ball", "frisbee"] inside the list are met by one of the two. */
  required?: string | (string | string[])[];
  /** No sequence of this many words occurs twice; 0 is off. */
  noRepeat?: number;
  /** Penalty for repeating a word (log-probability). */
  repeatPenalty?: number;
  /** Allow the unknown-word token <unk> in captions. */
  allowUnknown?: boolean;
  /** How a hard-attention model attends: to the expectation over all cells, or to the likeliest cell. */
  hardAttention?: "expected" | "argmax" | null;
}

export interface CaptionRequest extends SearchOptions {
  /** What errors call the picture; default: the name of the file. */
  name?: string;
  /** Cells of the grid, [row, column], that are painted in the mean color of the picture before it is captioned. */
  erase?: [number, number][];
  /** Ask for the upright picture as a JPEG with at most this many pixels on its longer side; 0 asks for none. */
  longSide?: number;
  /** Give each word the five likeliest words at its position, as `alternatives`. */
  wordAlternatives?: boolean;
}

export interface Word {
  text: string;
  probability: number;
  logProbability: number;
  /** Attention weights of the grid's cells, row by row. They add up to 1. */
  alpha: Float32Array;
  /** Share of the context that the decoder used, 0 to 1. */
  gate: number;
  /** The cell that a hard-attention model selected; null if it used all cells. */
  cell: [number, number] | null;
  /** False for words that name nothing, such as "of". */
  content: boolean;
  /** The likeliest words at this position, given the words before, with their probabilities, if they were asked for. */
  alternatives?: [word: string, probability: number][];
}

export interface Caption {
  /** The model's words: "a man riding a wave". */
  text: string;
  /** The text for readers: "A man riding a wave.". */
  sentence: string;
  /** The expected share of its content words that are right, 0 to 1; null if the model has no calibration. */
  confidence: number | null;
  /** The value that the search ranks by. */
  score: number;
  logProbability: number;
  words: Word[];
  /** The end token; null if the length limit cut the caption. */
  end: Word | null;
}

export interface PictureCaption extends Caption {
  /** The other captions of the n-best list. */
  alternatives: Caption[];
  /** Size of the upright picture. */
  width: number;
  height: number;
  picture: Blob | null;
}

export interface LoadOptions {
  /** The folder that `captioner web` wrote; default: the folder of this module. */
  folder?: string | URL;
  /** Called while the model is loaded, with bytes. */
  onprogress?: (progress: { loaded: number; total: number }) => void;
  /** Called when no more files will be loaded. */
  onloaded?: () => void;
  /** Threads to use; default: all, up to 8. A page that is not cross-origin isolated has one. */
  threads?: number;
  /** false: never WebGPU; true: also an emulated one. Default: WebGPU where it is present and gives the known captions. */
  webgpu?: boolean;
}

/** A sentence for the user. */
export class CaptionerError extends Error {
  /** picture: it has no caption; option: a wrong option; load: the model can't be loaded; defect: anything else. */
  kind: "picture" | "option" | "load" | "defect";
}

export class Captioner {
  /** Loads the model, verifies every file, and keeps it in the browser's cache. */
  static load(options?: LoadOptions): Promise<Captioner>;
  private constructor();
  readonly model: { name: string; attention: "soft" | "hard"; rows: number; cols: number; beam: number };
  readonly engine: { webgpu: boolean; threads: number };
  /** The caption of a picture file. Rejects with a CaptionerError. */
  caption(file: Blob, request?: CaptionRequest): Promise<PictureCaption>;
  /** Captions of many pictures, one after another. A picture that can't be read doesn't stop the others. */
  captions(
    files: Iterable<Blob>,
    request?: CaptionRequest,
  ): AsyncGenerator<{ name: string; caption: PictureCaption } | { name: string; error: CaptionerError }>;
  /** Ends the worker. */
  close(): void;
}
