// Answers over server-sent events: a POST requests an answer, and a GET continues it after `Last-Event-ID`.

import { Answer, Interrupted, Patience, type Decision, type Tools } from "./answer.js";
import type { StreamEvent } from "./events.js";
import { readEvents } from "./frames.js";

/** The server refuses a request. `status` and the message are those of its response. */
export class HttpError extends Error {
  override name = "HttpError";

  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message || `the server says ${status}`);
  }
}

/** The method and the URL of a request. */
export type Route = readonly [method: string, url: string];

/** The URLs of a server. Without `read`, an interrupted answer cannot continue. */
export interface Routes {
  ask: Route;
  read?: (run: string) => Route;
  stop?: (run: string) => Route;
  decide?: (run: string, callId: string) => Route;
}

export interface ClientOptions {
  /** Sent with every request. */
  headers?: Record<string, string>;
  /** The tools that the page runs. */
  tools?: Tools;
  /** The maximum number of consecutive failed attempts to reconnect. */
  retries?: number;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  credentials?: RequestCredentials;
}

/** Returns the URLs below one URL: POST it, GET and DELETE `/RUN` below it, POST `/RUN/calls/CALL`. */
export function routesBelow(url: string): Required<Routes> {
  const of = (run: string) => `${url}/${encodeURIComponent(run)}`;
  return {
    ask: ["POST", url],
    read: (run) => ["GET", of(run)],
    stop: (run) => ["DELETE", of(run)],
    decide: (run, callId) => ["POST", `${of(run)}/calls/${encodeURIComponent(callId)}`],
  };
}

/** A client of a server. Its routes are below one URL, or are given one by one. */
export class Client {
  readonly routes: Routes;

  constructor(
    routes: string | Routes,
    readonly options: ClientOptions = {},
  ) {
    this.routes = typeof routes === "string" ? routesBelow(routes) : routes;
  }

  /** Requests an answer. The request is sent when the answer is first read. */
  ask(body: unknown, options: { signal?: AbortSignal } = {}): Answer {
    return new HttpAnswer(this, body, options.signal);
  }

  /** Reads a run that has begun, after the last event that was received. */
  resume(run: string, options: { after?: number; signal?: AbortSignal } = {}): Answer {
    const answer = new HttpAnswer(this, undefined, options.signal);
    answer.turn = { ...answer.turn, run, seq: options.after ?? 0 };
    return answer;
  }

  /** Sends a request. Rejects with `HttpError` if the status is an error. */
  async send([method, url]: Route, init: RequestInit = {}): Promise<Response> {
    const { headers, credentials } = this.options;
    const send = this.options.fetch ?? fetch;
    const said = new Headers(headers);
    new Headers(init.headers).forEach((value, name) => said.set(name, value));
    const response = await send(url, { ...init, ...(credentials ? { credentials } : {}), method, headers: said });
    if (!response.ok) throw new HttpError(response.status, (await response.text().catch(() => "")).slice(0, 1000));
    return response;
  }
}

const JSON_HEADERS = { "content-type": "application/json" };

class HttpAnswer extends Answer {
  readonly #client: Client;
  readonly #body: unknown;
  readonly #signal: AbortSignal | undefined;

  constructor(client: Client, body: unknown, signal: AbortSignal | undefined) {
    super(client.options.tools);
    this.#client = client;
    this.#body = body;
    this.#signal = signal;
  }

  protected async *read(): AsyncGenerator<StreamEvent, void, undefined> {
    const patience = new Patience(this.#client.options.retries ?? 8);
    for (;;) {
      const before = this.seq;
      try {
        const response = await this.#open();
        if (response.body) yield* readEvents(response.body);
      } catch (error) {
        if (this.#signal?.aborted || this.run === null || isFinal(error)) throw error;
      }
      if (this.turn.done) return;
      if (this.seq > before) patience.reset();
      if (this.run === null || !this.#client.routes.read || !(await patience.wait())) {
        throw new Interrupted("the answer broke off before its end");
      }
    }
  }

  #open(): Promise<Response> {
    const { routes } = this.#client;
    const signal = this.#signal ?? null;
    if (this.run === null) {
      const body = JSON.stringify(this.#body);
      return this.#client.send(routes.ask, { body, signal, headers: { ...JSON_HEADERS, accept: "text/event-stream" } });
    }
    const headers = { accept: "text/event-stream", "last-event-id": String(this.seq) };
    return this.#client.send(route(routes.read, "read")(this.run), { signal, headers });
  }

  async stop(): Promise<void> {
    await this.#client.send(route(this.#client.routes.stop, "stop")(this.#known("stopped")));
  }

  async decide(callId: string, decision: Decision): Promise<void> {
    const where = route(this.#client.routes.decide, "decide")(this.#known("decided about"), callId);
    await this.#client.send(where, { body: JSON.stringify(decision), headers: JSON_HEADERS });
  }

  #known(what: string): string {
    if (this.run === null) throw new Error(`a run is ${what} once it has begun: read its first event before`);
    return this.run;
  }
}

function route<T>(given: T | undefined, name: string): T {
  if (given === undefined) throw new Error(`the routes of this client have no ${name}`);
  return given;
}

/** Returns whether a new attempt is useless, because the server refuses the request. */
function isFinal(error: unknown): boolean {
  return error instanceof HttpError && error.status < 500 && error.status !== 408 && error.status !== 429;
}
