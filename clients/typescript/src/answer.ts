// One answer, wherever it comes from: its events, what they have come to, and what one can say to it.

import type { ApprovalRequestedEvent, ExecutingEvent, StreamEvent } from "./events.js";
import { emptyTurn, reduce, type Turn } from "./turn.js";

/** What is said about a call that waits: that it may run, that it may not, its result, or how it failed here. */
export type Decision =
  | { approved: true; digest?: string }
  | { approved: false; reason?: string; digest?: string }
  | { result: unknown }
  | { error: string };

/** Tools that the page carries out (`@tool(client=True)`): each is given the arguments, and returns the result. */
export type Tools = Record<string, (args: any, event: ExecutingEvent) => unknown>;

/** The answer broke off, and nobody knows how it goes on. */
export class Interrupted extends Error {
  override name = "Interrupted";
}

/**
 * An answer. Iterating gives its events, once, each as soon as it has come and none twice; where the connection is lost,
 * it comes back behind the last one. Leaving the loop leaves the answer alone: `stop` ends it.
 */
export abstract class Answer implements AsyncIterable<StreamEvent> {
  /** What has come so far. */
  turn: Turn = emptyTurn;
  readonly #tools: Tools;
  readonly #answered = new Set<string>();

  constructor(tools: Tools = {}) {
    this.#tools = tools;
  }

  /** The id of the run, as soon as it is known. */
  get run(): string | null {
    return this.turn.run;
  }

  /** The number of the last event. */
  get seq(): number {
    return this.turn.seq;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void, undefined> {
    for await (const event of this.read()) {
      const before = this.turn;
      this.turn = reduce(before, event);
      if (this.turn === before) continue;
      if (event.type === "executing") this.#carryOut(event);
      yield event;
      if (event.type === "done") return;
    }
  }

  /** Ends the run, which says so itself: `done`, with the reason `cancelled`. */
  abstract stop(): Promise<void>;

  /** Says what becomes of a call. Rejects, or tells `onRefused`, if nothing waits for that. */
  abstract decide(callId: string, decision: Decision): Promise<void>;

  protected abstract read(): AsyncIterable<StreamEvent>;

  /** Lets exactly the call run that this event has shown. */
  approve({ call, digest }: ApprovalRequestedEvent): Promise<void> {
    return this.decide(call.id, { approved: true, ...(digest ? { digest } : {}) });
  }

  /** Ends the call; the model reads the reason. */
  deny({ call, digest }: ApprovalRequestedEvent, reason = ""): Promise<void> {
    return this.decide(call.id, { approved: false, ...(reason ? { reason } : {}), ...(digest ? { digest } : {}) });
  }

  #carryOut(event: ExecutingEvent): void {
    const { id, name, arguments: given } = event.call;
    if (!Object.hasOwn(this.#tools, name) || this.#answered.has(id)) return;
    this.#answered.add(id);
    const isOpen = () => this.turn.parts.some((part) => part.kind === "call" && part.id === id && part.state === "executing");
    const run = async () => {
      if (!isOpen()) return; // the events of a run that is read again hold its end, too
      let decision: Decision;
      try {
        decision = { result: (await this.#tools[name]?.(given, event)) ?? null };
      } catch (error) {
        decision = { error: error instanceof Error ? error.message : String(error) };
      }
      await this.decide(id, decision).catch(() => {}); // answered elsewhere, or too late: the events say so
    };
    setTimeout(() => void run());
  }
}

/** Waits longer each time, up to four seconds. */
export class Patience {
  #failures = 0;

  constructor(readonly retries: number) {}

  /** Something has come. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits before the next try; false if there is to be none. */
  async wait(): Promise<boolean> {
    if (this.#failures >= this.retries) return false;
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** this.#failures++, 4000)));
    return true;
  }
}
