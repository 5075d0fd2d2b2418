// The worker for peers on Node: the same requests and answers as worker.py, on WHATWG streams.
//
// A parser is a TransformStream. Deltas are written as fast as it takes them, and a reader takes what comes out. A time is
// that on the wall or that of the processor, whichever is less: the first counts what else the machine does, the second
// the threads of the compiler. What is timed is the parser alone; what is judged has gone through the whole middleware,
// which also fits arguments to their schemas.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [choice, folder] = process.argv.slice(2);
const FIRST_LOOK = 512;
const PATIENCE = 2000;
const SHORTEST = 10;

const reply = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const clock = () => {
  const wall = performance.now();
  const { user, system } = process.cpuUsage();
  return () => Math.min(performance.now() - wall, (process.cpuUsage().user - user + process.cpuUsage().system - system) / 1000);
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

function load() {
  if (choice === "identity") {
    const transform = (part, controller) => controller.enqueue(part);
    const make = () => new TransformStream({ transform });
    return { version: process.version, make, whole: make };
  }
  const require = createRequire(folder + "/package.json");
  const library = require("@ai-sdk-tool/parser");
  const { version } = JSON.parse(readFileSync(folder + "/node_modules/@ai-sdk-tool/parser/package.json", "utf8"));
  const protocol = { hermes: library.hermesProtocol, qwen3Coder: library.qwen3CoderProtocol }[choice];
  const declared = (tools) => tools.map(({ parameters, ...rest }) => ({ type: "function", inputSchema: parameters, ...rest }));
  const make = (tools) => protocol().createStreamParser({ tools: declared(tools), options: {} });
  const whole = async (tools) => {
    const { readable: stream, writable } = new TransformStream();
    const originalTools = library.encodeOriginalTools(declared(tools));
    const params = { providerOptions: { toolCallMiddleware: { originalTools } } };
    const { stream: readable } = await library.wrapStream({ protocol: protocol(), doStream: async () => ({ stream }), params });
    return { readable, writable };
  };
  return { version, make, whole };
}

function cut(text, sizes) {
  const characters = Array.from(text); // sizes count characters, and not halves of them
  let at = 0;
  return sizes.map((size) => characters.slice(at, (at += size)).join(""));
}

async function live(peer, tools, deltas, limit, told, pace) {
  const stream = await (told ? peer.whole(tools) : peer.make(tools));
  const reader = stream.readable.getReader();
  const writer = stream.writable.getWriter();
  let number = 0;
  const reading = (async () => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      if (told) told.push([number, value]);
    }
  })();
  reading.catch(() => {}); // whatever it is, the writer or the end of this function meets it, too
  const looks = new Set();
  for (let look = FIRST_LOOK; look < deltas.length; look *= 2) looks.add(look);
  const elapsed = clock();
  let before = 0;
  for (const delta of deltas) {
    await writer.ready;
    writer.write({ type: "text-delta", id: "1", delta });
    if (told) await (pace ? new Promise((resolve) => setTimeout(resolve, pace)) : turn());
    number += 1;
    if (!looks.has(number)) continue;
    const spent = elapsed();
    if (limit && spent > PATIENCE) {
      const exponent = before ? Math.log2(spent / before) : 1;
      const projected = (spent * (deltas.length / number) ** Math.max(1, exponent)) / 1000;
      if (projected > limit) {
        writer.abort().catch(() => {});
        return { dnf: `${projected.toFixed(0)} s by n^${exponent.toFixed(1)} at ${number}/${deltas.length}` };
      }
    }
    before = spent;
  }
  const usage = { inputTokens: { total: 0 }, outputTokens: { total: 0 } };
  await writer.ready;
  writer.write({ type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage });
  await writer.close();
  await reading;
  return { seconds: elapsed() / 1000 };
}

function read([number, part]) {
  switch (part.type) {
    case "text-delta":
      return [[number, "text", part.delta]];
    case "tool-input-start":
      return [[number, "call", part.id, part.toolName]];
    case "tool-input-delta":
      return [[number, "args", part.id, part.delta]];
    case "tool-call":
      return [[number, "whole", part.toolCallId, part.toolName, part.input]];
    default:
      return [];
  }
}

async function answer(peer, request) {
  const { tools, text } = request;
  if (request.op === "time") {
    const deltas = cut(text, request.sizes);
    if (!request.once) await live(peer, tools, deltas.slice(0, 5000), request.limit); // for the compiler
    const first = await live(peer, tools, deltas, request.limit);
    if (request.once || first.dnf || first.seconds * 1000 >= SHORTEST) return first;
    const count = Math.min(1000, Math.round(SHORTEST / Math.max(first.seconds * 1000, 0.001)) + 1);
    let seconds = 0;
    for (let pass = 0; pass < count; pass++) seconds += (await live(peer, tools, deltas, request.limit)).seconds;
    return { seconds: seconds / count };
  }
  const answers = [];
  for (const sizes of request.cuts) {
    const told = [];
    try {
      await live(peer, tools, cut(text, sizes), 0, told, request.pace ?? 0);
      answers.push(told.flatMap(read));
    } catch (error) {
      answers.push(String(error).slice(0, 200));
    }
  }
  return { told: answers };
}

let peer;
try {
  peer = load();
} catch (error) {
  reply({ missing: String(error.message).split("\n")[0] });
  process.exit(0);
}
reply({ version: peer.version });
for await (const line of createInterface({ input: process.stdin })) {
  try {
    reply(await answer(peer, JSON.parse(readFileSync(JSON.parse(line), "utf8"))));
  } catch (error) {
    reply({ raised: String(error.stack).slice(-500) });
  }
}
