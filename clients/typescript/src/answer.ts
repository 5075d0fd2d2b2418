// One answer, over any connection: its events, its state, and the decisions about its calls.

import type { ApprovalRequestedEvent, ExecutingEvent, StreamEvent } from "./events.js";
import { emptyTurn, reduce, type Turn } from "./turn.js";

/** A decision about a waiting call: it may run, it may not run, its result, or its error. */
export type Decision =
  | { decision: "approve"; digest?: string }
  | { decision: "deny"; reason?: string }
  | { decision: "answer"; result: unknown }
  | { decision: "answer"; error: string };

/** Tools that the page runs (`@tool(client=True)`). Each receives the arguments and returns the result. */
export type Tools = Record<string, (args: any, event: ExecutingEvent) => unknown>;

/** The answer was interrupted and cannot continue. */
export class Interrupted extends Error {
  override name = "Interrupted";
}

/**
 * An answer. Iterating yields each event once, when it arrives. After a lost connection, it reconnects and continues
 * after the last event. Leaving the loop does not end the answer. `stop` ends it.
 */
export abstract class Answer implements AsyncIterable<StreamEvent> {
  /** The state after the last event. */
  turn: Turn = emptyTurn;
  readonly #tools: Tools;
  readonly #answered = new Set<string>();

  constructor(tools: Tools = {}) {
    this.#tools = tools;
  }

  /** The id of the run, or null until it is known. */
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

  /** Ends the run. Its last event is `done`, with the reason `cancelled`. */
  abstract stop(): Promise<void>;

  /** Decides about a call. If no call waits for the decision, it rejects or calls `onRefused`. */
  abstract decide(callId: string, decision: Decision): Promise<void>;

  protected abstract read(): AsyncIterable<StreamEvent>;

  /** Approves exactly the call that this event has shown. */
  approve({ call, digest }: ApprovalRequestedEvent): Promise<void> {
    return this.decide(call.id, { decision: "approve", ...(digest ? { digest } : {}) });
  }

  /** Denies the call. The model reads the reason. */
  deny({ call }: ApprovalRequestedEvent, reason = ""): Promise<void> {
    return this.decide(call.id, { decision: "deny", reason });
  }

  #carryOut(event: ExecutingEvent): void {
    const { id, name, arguments: given } = event.call;
    if (!Object.hasOwn(this.#tools, name) || this.#answered.has(id)) return;
    this.#answered.add(id);
    const isOpen = () => this.turn.parts.some((part) => part.kind === "call" && part.id === id && part.state === "executing");
    const run = async () => {
      if (!isOpen()) return; // a run that is read again also has the events that ended its calls
      let decision: Decision;
      try {
        decision = { decision: "answer", result: (await this.#tools[name]?.(given, event)) ?? null };
      } catch (error) {
        decision = { decision: "answer", error: error instanceof Error ? error.message : String(error) };
      }
      await this.decide(id, decision).catch(() => {}); // answered elsewhere, or too late: the events report it
    };
    setTimeout(() => void run());
  }
}

/** Waits longer each time, up to four seconds. */
export class Patience {
  #failures = 0;

  constructor(readonly retries: number) {}

  /** Resets the wait after an event has arrived. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits before the next try. Returns false if no try is left. */
  async wait(): Promise<boolean> {
    if (this.#failures >= this.retries) return false;
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** this.#failures++, 4000)));
    return true;
  }
}
