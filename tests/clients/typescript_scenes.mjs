// What a page does with @streamtools/client, in Node and in a browser alike: each scene returns what the page has at
// its end. `how` is "http", "socket" or "conversation" (over a socket); `base` is the address of the server.

const ask = (words) => ({ messages: [{ role: "user", content: words }] });

export function makeScenes(lib, how, base) {
  const asked = []; // the numbers behind which it came back
  const refused = [];
  let cut = false; // the connection will be lost, once
  const closed = { pick_date: () => Promise.reject(new Error("the user has closed it")) };
  const dates = { pick_date: ({ title }) => `${title}: 2027-03-01` };

  // Loses the connection behind the first text, in the midst of the next frame.
  const breakingFetch = async (url, init) => {
    const response = await fetch(url, init);
    if (init.method === "GET") asked.push(Number(new Headers(init.headers).get("last-event-id")));
    if (!cut || response.body === null) return response;
    cut = false;
    const reader = response.body.getReader();
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    void (async () => {
      let seen = "";
      while (!/event: text\n.*?\n\n/s.test(seen)) seen += new TextDecoder().decode((await reader.read()).value);
      const end = seen.search(/(?<=event: text\n(?:.+\n)+)\n/);
      await writer.write(new TextEncoder().encode(seen.slice(0, end + 10)));
      await reader.cancel();
      await writer.abort(new TypeError("network error"));
    })();
    return new Response(readable, { status: response.status, headers: response.headers });
  };

  class BreakingSocket extends WebSocket {
    constructor(url) {
      super(url);
      this.addEventListener("message", ({ data }) => {
        if (!cut || JSON.parse(data).type !== "text") return;
        cut = false;
        this.close(4000);
      });
    }

    send(frame) {
      const { resume } = JSON.parse(frame);
      if (resume !== undefined) asked.push(resume);
      super.send(frame);
    }
  }

  const open = (tools) => {
    if (how === "http") return new lib.Client(`${base}/chat`, { tools, fetch: breakingFetch });
    const options = { tools, WebSocket: BreakingSocket, onRefused: ({ code }) => refused.push(code) };
    const socket = new lib.Socket(`${base.replace("http", "ws")}/chat`, options);
    if (how === "socket") return socket;
    const conversation = "c";
    return {
      ask: (message) => socket.ask(message, { conversation }),
      resume: (run, more) => socket.resume(run, { ...more, conversation }),
      decide: (run, call, decision) => socket.decide(run, call, decision, { conversation }),
      close: () => socket.close(),
    };
  };

  const hear = async (answer, react = () => {}) => {
    const seqs = [];
    let failure = null;
    try {
      for await (const event of answer) {
        seqs.push(event.seq);
        await react(event, answer);
      }
    } catch (error) {
      failure = `${error.name}: ${error.status ?? error.code ?? error.message}`;
    }
    return { turn: answer.turn, seqs, failure };
  };

  const decide = (answering) => async (event, answer) => {
    if (event.type === "approval-requested") await answering(event, answer);
  };

  const scenes = {
    talk: async (client) => hear(client.ask(ask("Hello"))),
    async broken(client) {
      cut = true;
      return { ...(await hear(client.ask(ask("Hello")))), asked };
    },
    approve: async (client) => hear(client.ask(ask("Pay.")), decide((event, answer) => answer.approve(event))),
    deny: async (client) => hear(client.ask(ask("Pay.")), decide((event, answer) => answer.deny(event, "too much"))),
    async input(client) {
      const written = [];
      const heard = await hear(client.ask(ask("Pay.")), async (event, answer) => {
        if (event.type === "call-delta") written.push(answer.turn.parts.at(-1).written);
        if (event.type === "approval-requested") await answer.approve(event);
      });
      return { ...heard, written };
    },
    async twice(client) {
      let second = null;
      const heard = await hear(client.ask(ask("Pay.")), async (event, answer) => {
        if (event.type === "approval-requested") await answer.approve({ ...event, digest: "of another call" }).catch((error) => (second = error.status));
        if (event.type === "approval-requested") await answer.approve(event);
      });
      return { ...heard, refused: second === null ? refused : [second] };
    },
    async later(client) {
      const { turn } = await hear(client.ask(ask("Pay.")));
      const { id } = turn.parts.find((part) => part.kind === "call");
      const wrong = await hear(client.decide(turn.run, id, { decision: "approve", digest: "of another call" }));
      cut = true;
      const heard = await hear(client.decide(turn.run, id, { decision: "approve" }));
      return { ...heard, waiting: turn.state, wrong: wrong.failure, asked };
    },
    own: async (client) => hear(client.ask(ask("When?"))),
    async stop(client) {
      return hear(client.ask(ask("Go on.")), async (event, answer) => {
        if (event.type === "text") await answer.stop();
      });
    },
    gone: async (client) => hear(client.resume("run_none")),
    async again(client) {
      const first = client.ask(ask("Hello"));
      const { turn } = await hear(first);
      return { first: turn, ...(await hear(client.resume(turn.run))) };
    },
    async talks(client) {
      const answers = ["One", "Two", "Three"].map((words) => client.ask(ask(words)));
      const turns = [];
      for (const answer of answers) turns.push((await hear(answer)).turn);
      return { turns };
    },
  };

  return async (name) => {
    const client = open(name === "failing" ? closed : dates);
    try {
      return await (scenes[name] ?? scenes.talk)(client);
    } finally {
      client.close?.();
    }
  };
}

// Reads bodies at every cut, and reduces runs.
export function reduceAll(lib, { bodies, runs }) {
  const frames = bodies.map((body) => {
    const whole = JSON.stringify(new lib.FrameReader().feed(body));
    for (let at = 0; at <= body.length; at++) {
      const reader = new lib.FrameReader();
      const cut = JSON.stringify([...reader.feed(body.slice(0, at)), ...reader.feed(body.slice(at))]);
      if (cut !== whole) throw new Error(`cut at ${at}: ${cut} and not ${whole}`);
    }
    const one = new lib.FrameReader();
    const pieces = [...body].flatMap((piece) => one.feed(piece));
    if (JSON.stringify(pieces) !== whole) throw new Error(`one by one: ${pieces}`);
    return pieces;
  });
  const turns = runs.map((events) =>
    events.reduce((turn, event) => {
      const frozen = JSON.stringify(turn);
      const next = lib.reduce(turn, event);
      if (JSON.stringify(turn) !== frozen) throw new Error("a turn was changed in place");
      if (event.seq && lib.reduce(next, event) !== next) throw new Error("an event counts twice");
      return next;
    }, lib.emptyTurn),
  );
  return { frames, turns };
}
