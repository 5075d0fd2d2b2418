// The server of the rows of `bench_backends` that run on Node, with a path for each way of writing a backend.
//
//     node server.mjs PROVIDER
//
// It prints its port, and ends when its standard input ends. `/rows` lists the available rows.

import { Agent, createServer, request } from "node:http";

const provider = process.argv[2];
const url = `${provider}/chat/completions`;
const agent = new Agent({ keepAlive: true });
const eventStream = { "content-type": "text/event-stream" };

const pages = {
  // Pass the provider's bytes through, with the streams of `node:http`.
  node_pipe(body, response) {
    const upstream = request(url, { method: "POST", agent }, (answer) => {
      response.writeHead(200, eventStream);
      answer.pipe(response);
    });
    upstream.end(body);
  },

  // Pass the provider's bytes through, with `fetch`.
  async node_fetch(body, response) {
    const answer = await fetch(url, { method: "POST", body });
    response.writeHead(200, eventStream);
    for await (const chunk of answer.body) response.write(chunk);
    response.end();
  },
};

try {
  const { pipeUIMessageStreamToResponse, streamText, toUIMessageStream } = await import("ai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const model = createOpenAICompatible({ name: "provider", baseURL: provider, apiKey: "k" }).chatModel("m");

  pages.node_ai_sdk = (body, response) => {
    const result = streamText({ model, messages: JSON.parse(body).messages });
    pipeUIMessageStreamToResponse({ response, stream: toUIMessageStream({ stream: result.stream }) });
  };
} catch (error) {
  if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
}

const server = createServer(async (asked, response) => {
  const page = asked.url.split("?")[0].slice(1);
  if (page === "rows") {
    response.end(JSON.stringify(Object.keys(pages)));
    return;
  }
  let body = "";
  for await (const chunk of asked) body += chunk;
  await pages[page](body, response);
});
server.listen({ port: 0, host: "127.0.0.1", backlog: 4096 }, () => console.log(server.address().port));
process.stdin.on("end", () => process.exit()).resume();
