// The state of a run: one function returns the next state for a state and an event. It changes no object. Parts that an
// event does not change remain the same objects, so that an interface can find the parts to draw again.

import type { Code, DoneEvent, ErrorEvent, PartialEvent, StreamEvent, ToolCall, Usage } from "./events.js";

/** The state of a call. A `pending` call has not run. The front end may run it. */
export type CallState = "writing" | "ready" | "asking" | "executing" | "executed" | "failed" | "denied" | "pending";

/** Text that is shown. Each step has separate texts. */
export interface TextPart {
  readonly kind: "text" | "reasoning";
  readonly step: number;
  readonly text: string;
}

/** A call, at its position between the texts. */
export interface CallPart {
  readonly kind: "call";
  readonly step: number;
  readonly id: string;
  readonly state: CallState;
  readonly name: string | null;
  /** The arguments as they are written, if the server sends them. */
  readonly written: string;
  /** The complete call. */
  readonly call: ToolCall | null;
  /** The digest of the call that was shown. An approval must contain it. */
  readonly digest: string | null;
  /** The time until which a decision is accepted, in seconds since 1970. */
  readonly expires: number | null;
  /** The last progress that the tool reported. */
  readonly progress: unknown;
  readonly result: unknown;
  /** A message about the result or the error. */
  readonly message: string | null;
  readonly code: Code | null;
  /** The text of a malformed call. */
  readonly raw: string | null;
  /** Seconds that the tool took. */
  readonly elapsed: number | null;
}

/** A file that the model has made, usually an image. `url` contains it (`data:`) or is its address (`https:`). */
export interface FilePart {
  readonly kind: "file";
  readonly step: number;
  readonly url: string;
}

export type Part = TextPart | CallPart | FilePart;

/** The answer to a question, up to the last event. */
export interface Turn {
  readonly run: string | null;
  /** The number of the last event. */
  readonly seq: number;
  readonly state: "waiting" | "answering" | DoneEvent["reason"];
  readonly step: number;
  readonly parts: readonly Part[];
  /** The id of the call that the model is writing, `true` if the id is unknown, or `false` without a call. */
  readonly thinking: string | boolean;
  /** The value for the option `output`, which may be incomplete. */
  readonly output: unknown;
  readonly usage: Usage | null;
  /** Whether events are missing, because the log no longer had them. */
  readonly gap: boolean;
  /** Whether the server process of the run is lost, and the process that continues the run has sent no more of it. */
  readonly reconnecting: boolean;
  /** The error that ended the run. */
  readonly failure: ErrorEvent | null;
  readonly done: DoneEvent | null;
}

/** The answer before its first event. */
export const emptyTurn: Turn = {
  run: null,
  seq: 0,
  state: "waiting",
  step: 0,
  parts: [],
  thinking: false,
  output: undefined,
  usage: null,
  gap: false,
  reconnecting: false,
  failure: null,
  done: null,
};

/** Returns the turn after an event. For an event that it already contains, returns the same turn. */
export function reduce(turn: Turn, event: StreamEvent): Turn {
  if (event.seq && event.seq <= turn.seq) return turn;
  const next = turn.state === "waiting" && event.type !== "start" ? "answering" : turn.state;
  const reconnecting = isOwnerLost(event) || (turn.reconnecting && AFTER_LOSS.has(event.type));
  const state = event.type === "done" ? {} : { state: next };
  return { ...change(turn, event), ...state, reconnecting, seq: event.seq || turn.seq };
}

// The next process sends these events before it continues: they end a call that was being written.
const AFTER_LOSS = new Set(["warning", "error", "partial", "thinking"]);

function isOwnerLost(event: StreamEvent): boolean {
  return event.type === "warning" && event.code === "owner_lost";
}

function change(turn: Turn, event: StreamEvent): Turn {
  switch (event.type) {
    case "start":
      return { ...turn, run: event.run_id };
    case "step-start":
      return { ...turn, step: event.step };
    case "step-superseded":
      return { ...turn, parts: turn.parts.filter((part) => part.step !== event.step) };
    case "text":
    case "reasoning":
      return say(turn, event.type, event.text);
    case "thinking": {
      const known = event.active && event.call_id ? update(turn, event.call_id, () => ({})) : turn;
      return { ...known, thinking: event.active && (event.call_id ?? true) };
    }
    case "call-start":
      return update(turn, event.call_id, () => ({ name: event.name }));
    case "call-delta":
      return update(turn, event.call_id, ({ written }) => ({ written: written + event.text }));
    case "call":
      return know(turn, event.call, { state: "ready" });
    case "approval-requested":
      return know(turn, event.call, {
        state: "asking",
        digest: event.digest ?? null,
        expires: event.expires ?? null,
      });
    case "executing":
      return know(turn, event.call, { state: "executing" });
    case "progress":
      return update(turn, event.call_id, () => ({ progress: event.data }));
    case "executed": {
      const { result, message, elapsed } = event;
      return know(turn, event.call, { state: "executed", result, message, elapsed });
    }
    case "error":
      return event.call_id ? fail(turn, event, event.call_id) : { ...turn, failure: event };
    case "partial":
      if (event.call_id) return turn;
      return { ...turn, output: grow(turn.output, event.path, event) };
    case "usage":
      return { ...turn, usage: add(turn.usage, event.usage) };
    case "raw": {
      const files = filesOf(event.data).map((url): FilePart => ({ kind: "file", step: turn.step, url }));
      return files.length ? { ...turn, parts: [...turn.parts, ...files] } : turn;
    }
    case "warning":
      return event.code === "resync" ? { ...turn, gap: true } : turn;
    case "done": {
      const parts = turn.parts.map((part) => (part.kind === "call" && isOpen(part) ? leave(part, event) : part));
      return { ...turn, parts, thinking: false, state: event.reason, done: event };
    }
    default: // an event for developers, or of a later version
      return turn;
  }
}

// Each provider sends files in another form; see `outputs/front_end.py`.
function filesOf(data: any): string[] {
  if (typeof data !== "object" || data === null) return [];
  const { type, inlineData, image, result, url } = data;
  const listed: unknown = data.choices?.[0]?.delta?.images ?? data.images ?? (type === "model_output" ? data.content : []);
  const found: unknown[] = [
    inlineData && holding(inlineData.data, inlineData.mimeType), // Gemini
    type === "image_generation_call" && holding(result), // Responses
    image?.source && holding(image.source.bytes, `image/${image.format}`), // Bedrock
    type === "file" && url, // the AI SDK
    // OpenRouter, Interactions, Ollama
    ...(Array.isArray(listed) ? listed : []).map((each) => each?.image_url?.url ?? holding(each?.data ?? each, each?.mime_type)),
  ];
  return found.filter((each): each is string => typeof each === "string" && /^(?:data|https):/.test(each));
}

function holding(data: unknown, kind?: unknown): string {
  if (typeof data !== "string" || !data) return "";
  const known = { "/9j/": "jpeg", R0lG: "gif", UklG: "webp" }[data.slice(0, 4)] ?? "png"; // the beginnings in Base64
  return `data:${typeof kind === "string" ? kind : `image/${known}`};base64,${data}`;
}

function say(turn: Turn, kind: TextPart["kind"], text: string): Turn {
  if (!text) return turn;
  const last = turn.parts.at(-1);
  if (last?.kind === kind && last.step === turn.step) {
    return { ...turn, parts: turn.parts.with(-1, { ...last, text: last.text + text }) };
  }
  return { ...turn, parts: [...turn.parts, { kind, step: turn.step, text }] };
}

function update(turn: Turn, id: string, changes: (part: CallPart) => Partial<CallPart>): Turn {
  const at = turn.parts.findLastIndex((part) => part.kind === "call" && part.id === id);
  const part = turn.parts[at];
  if (part?.kind === "call") return { ...turn, parts: turn.parts.with(at, { ...part, ...changes(part) }) };
  const made = unknownCall(id, turn.step);
  return { ...turn, parts: [...turn.parts, { ...made, ...changes(made) }] };
}

function unknownCall(id: string, step: number): CallPart {
  const nothing = { name: null, call: null, digest: null, expires: null, message: null, code: null, raw: null };
  const open = { written: "", progress: undefined, result: undefined, elapsed: null };
  return { kind: "call", step, id, state: "writing", ...nothing, ...open };
}

function know(turn: Turn, call: ToolCall, changes: Partial<CallPart>): Turn {
  return update(turn, call.id, () => ({ call, name: call.name, ...changes }));
}

function fail(turn: Turn, { code, message, raw, call }: ErrorEvent, id: string): Turn {
  const state = code === "tool_denied" ? "denied" : "failed";
  const known = call ? { call, name: call.name } : {};
  return update(turn, id, () => ({ ...known, state, code, message, raw: raw ?? null }));
}

function isOpen({ state }: CallPart): boolean {
  return state !== "executed" && state !== "failed" && state !== "denied";
}

function leave(part: CallPart, { pending }: DoneEvent): CallPart {
  return { ...part, state: pending.some(({ id }) => id === part.id) ? "pending" : "failed" };
}

/** Returns a value with an addition at a path. Text is appended, and other values replace. Complete values stay. */
function grow(value: unknown, path: PartialEvent["path"], added: PartialEvent): unknown {
  const [key, ...rest] = path;
  if (key === undefined) {
    if (typeof added.value === "string" && typeof value === "string") return value + added.value;
    const stands = added.complete && typeof added.value === "object" && typeof value === "object" && value !== null;
    return stands ? value : added.value;
  }
  const grown = Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) };
  const inside: unknown = Object.hasOwn(grown, key) ? (grown as Record<string | number, unknown>)[key] : undefined;
  const made = { value: grow(inside, rest, added), configurable: true, enumerable: true, writable: true };
  return Object.defineProperty(grown, key, made); // also `__proto__`, which a model may write
}

function add(sum: Usage | null, usage: Usage): Usage {
  const added: Usage = { ...sum };
  for (const name of ["input", "output", "total", "cache_read", "cache_write", "reasoning", "cost"] as const) {
    if (usage[name] != null) added[name] = (added[name] ?? 0) + usage[name];
  }
  return added;
}
