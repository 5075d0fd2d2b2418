// The typed answers of a streamtools server, over server-sent events and WebSocket, and their state.

export { Answer, Interrupted, type Decision, type Tools } from "./answer.js";
export type * from "./events.js";
export { FrameReader, readEvents } from "./frames.js";
export { Client, HttpError, routesBelow, type ClientOptions, type Route, type Routes } from "./http.js";
export { Socket, SocketError, type SocketOptions } from "./socket.js";
export { emptyTurn, reduce, type CallPart, type CallState, type Part, type TextPart, type Turn } from "./turn.js";
