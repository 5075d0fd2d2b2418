// Answers over a websocket, in order. A lost connection is opened again, and the answer continues.

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

/** A conversation over a websocket. A message that is sent during an answer waits for the end of the answer. */
export class Socket {
  readonly #url: string;
  readonly #options: SocketOptions;
  readonly #patience: Patience;
  readonly #answers: SocketAnswer[] = []; // the first is being received
  #socket: WebSocket | null = null;
  #closed = false;

  constructor(url: string, options: SocketOptions = {}) {
    this.#url = url;
    this.#options = options;
    this.#patience = new Patience(options.retries ?? 8);
  }

  /** Sends a message, a JSON object whose keys the server's application chooses. */
  ask(message: Record<string, unknown>): Answer {
    return this.#add(message);
  }

  /** Reads a run that has begun, after the last event that was received. */
  resume(run: string, options: { after?: number } = {}): Answer {
    return this.#add(null, run, options.after ?? 0);
  }

  /** Closes the connection. Runs of the server continue. */
  close(): void {
    this.#closed = true;
    this.#socket?.close(1000);
    for (const answer of this.#answers.splice(0)) answer.fail(new Interrupted("the socket was closed"));
  }

  #add(message: Record<string, unknown> | null, run: string | null = null, seq = 0): Answer {
    const answer = new SocketAnswer(message, (frame) => this.#send(frame), this.#options.tools);
    answer.turn = { ...answer.turn, run, seq };
    if (this.#closed) answer.fail(new Interrupted("the socket was closed"));
    else this.#answers.push(answer);
    this.#next();
    return answer;
  }

  #send(frame: object): void {
    if (this.#socket?.readyState !== 1) throw new Interrupted("there is no connection");
    this.#socket.send(JSON.stringify(frame));
  }

  #next(): void {
    const answer = this.#answers[0];
    if (answer === undefined) return;
    if (this.#socket === null) this.#connect();
    else if (this.#socket.readyState === 1 && !answer.isSent) answer.send();
  }

  #connect(): void {
    const socket = (this.#socket = new (this.#options.WebSocket ?? WebSocket)(this.#url));
    socket.onopen = () => this.#next();
    socket.onmessage = ({ data }) => this.#take(JSON.parse(String(data)));
    socket.onclose = ({ code }) => void this.#lose(socket, code);
  }

  #take(said: StreamEvent | { error: { code: string; message: string; call_id?: string } }): void {
    const answer = this.#answers[0];
    if (!("type" in said)) {
      const refused = new SocketError(said.error.code, said.error.message, said.error.call_id ?? null);
      if (refused.callId !== null || answer === undefined) this.#options.onRefused?.(refused);
      else {
        this.#answers.shift();
        answer.fail(refused);
        this.#next();
      }
      return;
    }
    this.#patience.reset();
    answer?.take(said);
    if (said.type === "done") {
      this.#answers.shift();
      this.#next();
    }
  }

  async #lose(socket: WebSocket, code: number): Promise<void> {
    if (this.#socket !== socket || this.#closed) return;
    const answer = this.#answers[0];
    const goesOn = answer === undefined || !answer.isSent || answer.known !== null;
    if (!goesOn || (answer !== undefined && FINAL.has(code)) || !(await this.#patience.wait())) {
      this.#answers.shift();
      answer?.fail(new Interrupted(`the connection was closed (${code}) before the end of the answer`));
    } else if (answer !== undefined && answer.known !== null) answer.isSent = false;
    if (this.#socket !== socket || this.#closed) return;
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

  send(): void {
    this.isSent = true;
    const run = this.known ?? this.run;
    const seq = Math.max(this.#last, this.seq);
    this.#out(run === null ? (this.#message ?? {}) : { resume: seq, run_id: run });
    this.known = run;
  }

  take(event: StreamEvent): void {
    if (event.type === "start") this.known = event.run_id;
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
    this.#out({ cancel: true });
  }

  async decide(callId: string, decision: Decision): Promise<void> {
    if (!("approved" in decision)) this.#out({ tool_result: { call_id: callId, ...decision } });
    else if (decision.approved) this.#out({ approval: { call_id: callId, ...decision } });
    else this.#out({ approval: { call_id: callId, approved: false, reason: decision.reason ?? "" } });
  }
}
