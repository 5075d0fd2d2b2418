// What the programs share: they say what they see, one JSON object a line, so that a test can act on it.

export const tell = (kind, value) => process.stdout.write(JSON.stringify({ [kind]: value ?? null }) + "\n");

// fetch, which tells of comments that keep a response alive; clients do not show them.
export const listeningFetch = async (...request) => {
  const response = await fetch(...request);
  if (response.body === null) return response;
  const words = new TextDecoder();
  const listen = new TransformStream({
    transform(chunk, controller) {
      if (words.decode(chunk, { stream: true }).includes(": keep-alive")) tell("alive");
      controller.enqueue(chunk);
    },
  });
  const { status, headers } = response;
  return new Response(response.body.pipeThrough(listen), { status, headers });
};

// fetch, which answers with a body that is there already.
export const cannedFetch = (body) => async () =>
  new Response(body, { headers: { "content-type": "text/event-stream" } });

export const readStdin = async () => {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
};

export const nameOf = (error) => (error === undefined ? undefined : `${error.name}: ${error.message}`);
