/** The viewer: a picture, its caption, and for every word where the model looked. It needs the style sheet viewer.css. */

/** What a word depended on, measured by blurring parts of the picture: `captioner.evidence` explains the numbers. */
export interface EvidenceView {
  /** How much the word's log-probability falls when a window around the cell is blurred, row by row. */
  map: number[];
  /** Log-probability with the picture. */
  seen: number;
  /** Log-probability with the whole picture blurred away. */
  blurred: number;
  /** Rank correlation of attention and `map`. */
  correlation?: number;
  /** The word's probability while more and more of the picture is blurred (deletion) or uncovered (insertion). */
  curves?: {
    shares: number[];
    deletion: number[];
    insertion: number[];
    random_deletion: number[];
    random_insertion: number[];
  };
}

export interface WordView {
  word: string;
  probability: number;
  /** Attention of the rows x cols cells, row by row, in any unit. */
  map: number[];
  /** Share of the attended picture that the decoder used, 0 to 1. */
  gate?: number;
  /** Row and column of the cell that a hard-attention model selected. */
  cell?: [row: number, col: number];
  /** False for words that name nothing, such as "of". */
  content?: boolean;
  /** The likeliest words at this position with their probabilities. */
  alternatives?: [word: string, probability: number][];
  evidence?: EvidenceView;
}

export interface CaptionView {
  /** The grid of the maps. */
  rows: number;
  cols: number;
  score?: number;
  /** The expected share of its content words that are right, 0 to 1. */
  confidence?: number;
  words: WordView[];
}

/** How maps are drawn. */
export interface ViewerStyle {
  style?: "spotlight" | "heat" | "contour" | "blocks";
  /** Draw the true cells of the grid. */
  grid?: boolean;
  /** Draw each map on its own scale. */
  perWord?: boolean;
  /** Opacity of the map, 0 to 1. */
  opacity?: number;
  /** The top of the scale of attention, where several viewers share one. */
  top?: number | null;
}

export interface ViewerOptions extends ViewerStyle {
  /** An address, or the picture itself. */
  picture: string | HTMLImageElement | HTMLCanvasElement | ImageBitmap;
  /** The best caption first; the others can be chosen from a list. */
  captions: CaptionView[];
  /** false leaves out the controls below the picture. */
  controls?: boolean;
  /** The element whose arrow keys move through the sentence; default: the viewer. */
  keys?: HTMLElement | Document;
  /** Captions the picture again without some cells and words; the viewer then has buttons for it. */
  recaption?: (request: { cells: [row: number, col: number][]; without: string[] }) => Promise<CaptionView[]>;
  /** Called when another word is shown; -1 is the picture alone. */
  onselect?: (index: number) => void;
  /** Called with what the user changed of the style. */
  onstyle?: (changes: ViewerStyle) => void;
}

export interface Viewer {
  /** The picture is decoded and the first map is drawn. */
  readonly ready: Promise<void>;
  /** The index of the word that is shown; -1 is the picture alone. */
  readonly selected: number;
  /** The words of the caption that is shown. */
  readonly words: WordView[];
  readonly captions: CaptionView[];
  /** Shows a word. `focus` moves the focus to it; `quiet` does not call `onselect`. */
  select(index: number, options?: { focus?: boolean; quiet?: boolean }): void;
  /** Shows one word after the other. */
  play(): void;
  stop(): void;
  setStyle(changes: ViewerStyle): void;
  setCaptions(captions: CaptionView[]): void;
  /** Empties the element. */
  destroy(): void;
}

export function createViewer(root: HTMLElement, options: ViewerOptions): Viewer;

/** How concentrated the map of a word is, times how much the word owes to the picture: a viewer opens with the highest. */
export function visualness(word: WordView): number;
