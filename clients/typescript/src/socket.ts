// Answers over a websocket, in the order of each conversation. A lost connection is opened again, and the answers continue.

import { Answer, Interrupted, Patience, type Decision, type Tools } from "./answer.js";
import type { StreamEvent } from "./events.js";

/** The server refuses a frame. `code` is the reason. */
export class SocketError extends Error {
  override name = "SocketError";

  constructor(
    readonly code: string,
    message: string,
    readonly callId: string | null = null,
  ) {
    super(message);
  }
}

export interface SocketOptions {
  /** The tools that the page runs. */
  tools?: Tools;
  /** Called for a decision that was too late, or that was not about the shown call. */
  onRefused?: (error: SocketError) => void;
  /** The maximum number of consecutive failed attempts to reconnect. */
  retries?: number;
  /** Replaces the global `WebSocket`. */
  WebSocket?: typeof WebSocket;
}

const FINAL = new Set([1000, 1003, 1008, 1009]); // an error of the client, or the normal end

/**
 * Conversations over a websocket. A message that is sent during an answer waits for the end of the answer, unless it is
 * of another `conversation`. Messages without this option are one conversation.
 */
export class Socket {
  readonly #url: string;
  readonly #options: SocketOptions;
  readonly #patience: Patience;
  readonly #queues = new Map<string | null, SocketAnswer[]>(); // by conversation, not empty: the first is being received
  #socket: WebSocket | null = null;
  #closed = false;

  constructor(url: string, options: SocketOptions = {}) {
    this.#url = url;
    this.#options = options;
    this.#patience = new Patience(options.retries ?? 8);
  }

  /** Sends a message, a JSON object whose keys the server's application chooses. */
  ask(message: Record<string, unknown>, options: { conversation?: string } = {}): Answer {
    return this.#add(message, options.conversation);
  }

  /** Reads a run that has begun, after the last event that was received. */
  resume(run: string, options: { after?: number; conversation?: string } = {}): Answer {
    return this.#add(null, options.conversation, run, options.after);
  }

  /**
   * Decides about a call of a run that has ended waiting, even after a reload or a restart of the server. The answer has
   * the events of the run that continues. If other calls of the run still wait, it has only `done`. If the server refuses
   * the decision, the answer throws `SocketError`.
   */
  decide(run: string, callId: string, decision: Decision, options: { conversation?: string } = {}): Answer {
    return this.#add({ run_id: run, call_id: callId, ...decision }, options.conversation);
  }

  /** Closes the connection. Runs of the server continue. */
  close(): void {
    this.#closed = true;
    this.#socket?.close(1000);
    for (const answer of [...this.#queues.values()].flat()) answer.fail(new Interrupted("the socket was closed"));
    this.#queues.clear();
  }

  #add(message: Record<string, unknown> | null, conversation: string | null = null, run: string | null = null, seq = 0): Answer {
    const named = conversation === null ? {} : { conversation };
    const answer = new SocketAnswer(message, (frame) => this.#send({ ...frame, ...named }), this.#options.tools);
    answer.turn = { ...answer.turn, run, seq };
    if (this.#closed) answer.fail(new Interrupted("the socket was closed"));
    else this.#queues.set(conversation, [...(this.#queues.get(conversation) ?? []), answer]);
    this.#next();
    return answer;
  }

  #send(frame: object): void {
    if (this.#socket?.readyState !== 1) throw new Interrupted("there is no connection");
    this.#socket.send(JSON.stringify(frame));
  }

  #next(): void {
    for (const [answer] of this.#queues.values()) {
      if (this.#socket === null) this.#connect();
      else if (this.#socket.readyState === 1 && answer?.isSent === false) answer.send();
    }
  }

  /** Removes the first answer of a conversation, and returns it. */
  #shift(conversation: string | null): SocketAnswer | undefined {
    const [first, ...others] = this.#queues.get(conversation) ?? [];
    if (others.length) this.#queues.set(conversation, others);
    else this.#queues.delete(conversation);
    return first;
  }

  #connect(): void {
    const socket = (this.#socket = new (this.#options.WebSocket ?? WebSocket)(this.#url));
    socket.onopen = () => this.#next();
    socket.onmessage = ({ data }) => this.#take(JSON.parse(String(data)));
    socket.onclose = ({ code }) => void this.#lose(socket, code);
  }

  #take(said: { conversation?: string } & (StreamEvent | { error: { code: string; message: string; call_id?: string } })): void {
    const conversation = said.conversation ?? null;
    const answer = this.#queues.get(conversation)?.[0];
    if (!("type" in said)) {
      const refused = new SocketError(said.error.code, said.error.message, said.error.call_id ?? null);
      if (answer === undefined || (refused.callId !== null && refused.callId !== answer.decides)) this.#options.onRefused?.(refused);
      else {
        this.#shift(conversation)?.fail(refused);
        this.#next();
      }
      return;
    }
    this.#patience.reset();
    answer?.take(said);
    if (said.type === "done") {
      this.#shift(conversation);
      this.#next();
    }
  }

  async #lose(socket: WebSocket, code: number): Promise<void> {
    if (this.#socket !== socket || this.#closed) return;
    const lost = () => new Interrupted(`the connection was closed (${code}) before the end of the answer`);
    let waits = this.#queues.size === 0;
    for (const [conversation, [answer]] of [...this.#queues]) {
      if (FINAL.has(code) || (answer?.isSent && answer.known === null)) this.#shift(conversation)?.fail(lost());
      else waits = true;
    }
    if (waits && !(await this.#patience.wait())) {
      for (const conversation of [...this.#queues.keys()]) this.#shift(conversation)?.fail(lost());
    }
    if (this.#socket !== socket || this.#closed) return;
    for (const [answer] of this.#queues.values()) if (answer) answer.isSent = false;
    this.#socket = null;
    this.#next();
  }
}

class SocketAnswer extends Answer {
  isSent = false;
  known: string | null = null; // the id of the run, or null until it is known
  readonly #message: Record<string, unknown> | null;
  readonly #out: (frame: object) => void;
  readonly #events: StreamEvent[] = [];
  #last = 0;
  #failure: Error | null = null;
  #ended = false;
  #wake: () => void = () => {};

  constructor(message: Record<string, unknown> | null, out: (frame: object) => void, tools: Tools | undefined) {
    super(tools);
    this.#message = message;
    this.#out = out;
  }

  /** The id of the call that this answer's message decides about. Null after the first event, and for other messages. */
  get decides(): unknown {
    return this.#message?.decision === undefined || this.known !== null ? null : this.#message.call_id;
  }

  send(): void {
    this.isSent = true;
    const run = this.known ?? this.run;
    const seq = Math.max(this.#last, this.seq);
    this.#out(run === null ? (this.#message ?? {}) : { resume: seq, run_id: run });
    this.known = run;
  }

  take(event: StreamEvent): void {
    if (event.type === "start") this.known = event.run_id;
    else if (this.decides !== null) this.known ??= String(this.#message?.run_id);
    this.#last = Math.max(this.#last, event.seq);
    this.#ended ||= event.type === "done";
    this.#events.push(event);
    this.#wake();
  }

  fail(error: Error): void {
    this.#failure ??= error;
    this.#wake();
  }

  protected async *read(): AsyncGenerator<StreamEvent, void, undefined> {
    for (;;) {
      for (let event = this.#events.shift(); event; event = this.#events.shift()) yield event;
      if (this.#ended) return;
      if (this.#failure) throw this.#failure;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async stop(): Promise<void> {
    this.#out({ cancel: true, run_id: this.known ?? this.run });
  }

  async decide(callId: string, decision: Decision): Promise<void> {
    this.#out({ call_id: callId, ...decision });
  }
}
