// node bodies.mjs PACKAGE: the clients read bodies that are given to them, as {name: body} on the standard input. For the
// AI SDK each part is held against the schema of its own package too.

import { cannedFetch, nameOf, readStdin, tell } from "./telling.mjs";

const [, , name] = process.argv;
const bodies = await readStdin();
const read = {};

if (name === "@ag-ui/client") {
  const { HttpAgent } = await import(name);
  for (const [each, body] of Object.entries(bodies)) {
    const agent = new HttpAgent({ url: "http://localhost/", fetch: cannedFetch(body) });
    const errors = [];
    await agent
      .runAgent({}, { onRunFailed: ({ error }) => void errors.push(nameOf(error)) })
      .catch((error) => errors.push(nameOf(error)));
    read[each] = { messages: agent.messages, errors };
  }
} else {
  const { DefaultChatTransport, asSchema, readUIMessageStream, uiMessageChunkSchema } = await import(name);
  const schema = asSchema(uiMessageChunkSchema);
  for (const [each, body] of Object.entries(bodies)) {
    const errors = [];
    for (const frame of body.split("\n\n")) {
      if (frame === "" || frame === "data: [DONE]") continue;
      const checked = await schema.validate(JSON.parse(frame.slice("data: ".length)));
      if (!checked.success) errors.push(`${frame}: ${checked.error.message}`);
    }
    const transport = new DefaultChatTransport({ api: "http://localhost/", fetch: cannedFetch(body) });
    const stream = await transport.sendMessages({ chatId: "c", messages: [], trigger: "submit-message" });
    let message = null;
    const onError = (error) => errors.push(nameOf(error));
    for await (message of readUIMessageStream({ stream, onError })) continue;
    read[each] = { message, errors };
  }
}
tell("end", read);
