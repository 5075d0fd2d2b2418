// node gateway.mjs PACKAGE: a client asks the gateway at the address that it is given on the standard input, as its users
// do, and tells what has become of each question.

import { readStdin, tell } from "./telling.mjs";

const [, , name] = process.argv;
const { url } = await readStdin();
const QUESTION = "Weather?";
const schema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
let cities = [];
const weather = ({ city }) => (cities.push(city), "Sunny.");

// Ask, and tell for which cities the tool was called, and what was said; or the error, its status and its message.
const attempt = async (ask) => {
  cities = [];
  try {
    const said = await ask();
    return { said, cities: cities.sort() };
  } catch (error) {
    return { error: error.name, status: error.status ?? error.statusCode ?? null, message: error.message, cities };
  }
};

const asks = {};
if (name === "openai") {
  const { default: OpenAI } = await import(name);
  const client = new OpenAI({ baseURL: url, apiKey: "k", maxRetries: 0 });
  const tools = [{ type: "function", function: { name: "weather", parameters: schema, parse: JSON.parse, function: weather } }];
  const asked = { model: "m", messages: [{ role: "user", content: QUESTION }] };
  const run = (stream) => client.chat.completions.runTools({ ...asked, tools, stream }).finalContent();
  asks.loop = () => run(false);
  asks.streamed = () => run(true);
  const whole = (wanted) => client.chat.completions.parse({ ...asked, ...wanted });
  const inPieces = (wanted) => client.chat.completions.stream({ ...asked, ...wanted }).finalChatCompletion();
  const force = async (read) => {
    const told = await read({
      tools: [{ type: "function", function: { name: "weather", parameters: schema, strict: true } }],
      tool_choice: { type: "function", function: { name: "weather" } },
    });
    for (const call of told.choices[0].message.tool_calls) weather(JSON.parse(call.function.arguments));
    return told.choices[0].finish_reason;
  };
  const form = async (read) => {
    const response_format = { type: "json_schema", json_schema: { name: "city", schema, strict: true } };
    return (await read({ response_format })).choices[0].message.parsed.city;
  };
  asks.force = () => force(whole);
  asks.forceStreamed = () => force(inPieces);
  asks.form = () => form(whole);
  asks.formStreamed = () => form(inPieces);
} else {
  const { Output, generateText, jsonSchema, stepCountIs, streamText, tool } = await import(name);
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const model = createOpenAICompatible({ name: "gateway", baseURL: url, apiKey: "k", supportsStructuredOutputs: true })("m");
  const tools = { weather: tool({ inputSchema: jsonSchema(schema), execute: weather }) };
  const asked = { model, prompt: QUESTION, maxRetries: 0 };
  const loop = { ...asked, tools, stopWhen: stepCountIs(5) };
  asks.loop = async () => (await generateText(loop)).text;
  asks.streamed = async () => {
    const errors = [];
    const result = streamText({ ...loop, onError: ({ error }) => void errors.push(error) });
    let said = "";
    for await (const part of result.fullStream) {
      if (part.type === "start-step") said = "";
      if (part.type === "text-delta") said += part.text;
    }
    if (errors.length > 0) throw errors[0];
    return said;
  };
  const forced = { ...asked, tools, toolChoice: { type: "tool", toolName: "weather" } };
  const formed = () => ({ ...asked, output: Output.object({ schema: jsonSchema(schema) }) });
  asks.force = async () => (await generateText(forced)).finishReason;
  asks.forceStreamed = () => streamText(forced).finishReason;
  asks.form = async () => (await generateText(formed())).output.city;
  asks.formStreamed = async () => (await streamText(formed()).output).city;
}
const [, , , ...which] = process.argv;
const read = {};
for (const each of which.length > 0 ? which : Object.keys(asks)) read[each] = await attempt(asks[each]);
tell("end", read);
