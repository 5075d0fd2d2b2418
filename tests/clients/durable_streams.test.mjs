// The suite of servers of Durable Streams, against the server at SERVER.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.SERVER, longPollTimeoutMs: 6000 });
