// Written by `python -m tests.whole.event_types`, of the JSON schema of the events; do not edit.

/** A complete, well-formed call.
 *
 * - `id` is unique in the run. `provider_id` is an id that the model or the provider wrote.
 * - `dialect` is the form in which the model wrote it, `"native"` for a call that the provider sent separately.
 * - `raw` is the exact text that was hidden, including its markers. Calls of one array divide that text among them.
 * Native calls have none. Only a malformed native call of a history has the text of its arguments here.
 * - `repaired`: the JSON had a fault that could be repaired.
 * - `signature` is sent back to the provider unchanged. So is `own`, its other data about the call, by format. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  dialect: string;
  raw?: string;
  repaired?: boolean;
  provider_id?: string | null;
  signature?: string | null;
  own?: Record<string, unknown> | null;
}

/** What an error or a warning is. */
export type Code =
  | "abandoned"
  | "arguments_mismatch"
  | "bad_frame"
  | "call_in_reasoning"
  | "conflicting_fields"
  | "decision_unreadable"
  | "decisions_differ"
  | "duplicate_key"
  | "duplicate_tool"
  | "emulated"
  | "failed_over"
  | "forged_result"
  | "guard_failed"
  | "hidden_after_call"
  | "invalid_arguments"
  | "invalid_json"
  | "invalid_output"
  | "lone_surrogate"
  | "missing_close"
  | "missing_tool_name"
  | "near_miss"
  | "not_a_number"
  | "not_emulated"
  | "number_too_long"
  | "outcome_unknown"
  | "result_too_long"
  | "resync"
  | "salvaged"
  | "skipped"
  | "stream_interrupted"
  | "superseded"
  | "text_mismatch"
  | "too_deep"
  | "too_large"
  | "too_many_calls"
  | "tool_cancelled"
  | "tool_choice_violation"
  | "tool_denied"
  | "tool_failed"
  | "tool_input"
  | "tool_output"
  | "tool_timeout"
  | "truncated"
  | "undeclared_native"
  | "unknown_dropped"
  | "unknown_tool"
  | "unrecognised_tool_call"
  | "upstream_error";

/** Tokens of one provider turn, or of a run. None means that the provider does not report the value.
 *
 * `input` includes tokens read from a cache, and `output` includes reasoning. `cost` is the price in the provider's
 * currency, if it reports one (OpenRouter: US dollars). */
export interface Usage {
  input?: number | null;
  output?: number | null;
  total?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  reasoning?: number | null;
  cost?: number | null;
}

/** The run starts; nothing has been read yet. */
export interface StartEvent {
  type: "start";
  run_id: string;
  seq: number;
}

/** A step starts: one turn of the model, and the execution of its calls. The first is step 1.
 *
 * `format` is the message format of the provider, if the source knows it. Signatures of the turn belong to it. */
export interface StepStartEvent {
  type: "step-start";
  step: number;
  seq: number;
  format?: string | null;
}

/** The turn of the model has ended, and so have the executions of its calls.
 *
 * `response_id` and `model` are the provider's names for the response and the model, if it sends them. */
export interface StepEndEvent {
  type: "step-end";
  step: number;
  finish_reason: string | null;
  seq: number;
  response_id?: string | null;
  model?: string | null;
}

/** The last step failed and is discarded, because another model starts the response again.
 *
 * An interface removes its content, and the history does not contain it. None of its calls has run. */
export interface StepSupersededEvent {
  type: "step-superseded";
  step: number;
  seq: number;
}

/** A piece of the visible text. */
export interface TextEvent {
  type: "text";
  text: string;
  seq: number;
}

/** A piece of the model's reasoning.
 *
 * `signature`, `id`, `redacted` and `own` are for the next request to the provider, as in `ReasoningDelta`. */
export interface ReasoningEvent {
  type: "reasoning";
  text: string;
  seq: number;
  signature?: string | null;
  id?: string | null;
  redacted?: boolean;
  own?: Record<string, unknown> | null;
}

/** The typed value of `output` has grown: `value` was added at `path`.
 *
 * With a `call_id`, the arguments of that call have grown instead (`call_partials`).
 * A string grows by pieces. A number, true, false or null comes complete. An object or an array starts empty, and its
 * members and items follow with their own paths. `complete`: nothing follows at `path`; for an object or an array,
 * this event then adds nothing. */
export interface PartialEvent {
  type: "partial";
  path: (string | number)[];
  value: unknown;
  complete?: boolean;
  seq: number;
  call_id?: string | null;
}

/** The model has started (`active` is true) or finished writing a call; an interface can show a spinner
 * meanwhile. */
export interface ThinkingEvent {
  type: "thinking";
  active: boolean;
  call_id?: string | null;
  seq: number;
}

/** The name of the call that the model is writing is known. */
export interface CallStartEvent {
  type: "call-start";
  call_id: string;
  name: string;
  seq: number;
}

/** A piece of the arguments as JSON text. All pieces together are what the model wrote. */
export interface CallDeltaEvent {
  type: "call-delta";
  call_id: string;
  text: string;
  seq: number;
}

/** A call is complete and well formed. */
export interface CallEvent {
  type: "call";
  call: ToolCall;
  seq: number;
}

/** The call needs approval before `expires` (seconds since 1970).
 *
 * An approval with this `digest` applies to exactly this call. */
export interface ApprovalRequestedEvent {
  type: "approval-requested";
  call: ToolCall;
  expires?: number | null;
  seq: number;
  digest?: string;
}

/** The tool has started. */
export interface ExecutingEvent {
  type: "executing";
  call: ToolCall;
  seq: number;
}

/** Progress data from a running tool; the model never gets it. */
export interface ProgressEvent {
  type: "progress";
  call_id: string;
  data: unknown;
  seq: number;
}

/** The tool has returned. `message` is the `message` of the result, if it has one. `elapsed` is in seconds. */
export interface ExecutedEvent {
  type: "executed";
  call: ToolCall;
  result: unknown;
  message: string | null;
  elapsed: number;
  seq: number;
}

/** A call failed or does not run (with `call_id`), or the whole stream failed (without).
 *
 * `message` may be shown. `call` is the call, if it is well formed. `raw` is the text of a malformed call, and
 * `dialect` its dialect. */
export interface ErrorEvent {
  type: "error";
  code: Code;
  message: string;
  call_id?: string | null;
  call?: ToolCall | null;
  raw?: string | null;
  status?: number | null;
  dialect?: string | null;
  seq: number;
}

/** A diagnostic for developers, not for readers. */
export interface WarningEvent {
  type: "warning";
  code: Code;
  message: string;
  raw?: string | null;
  count?: number | null;
  seq: number;
}

/** The messages that are sent to the model next. Encoders leave this event out by default.
 *
 * If rules have changed them, `written` holds the messages that the model gets. */
export interface FollowUpEvent {
  type: "follow-up";
  messages: Record<string, unknown>[];
  seq: number;
}

/** Token usage of the turn that ends. If several models answered, one event for each, with its name. */
export interface UsageReportEvent {
  type: "usage";
  usage: Usage;
  seq: number;
  model?: string | null;
}

/** Provider data that the adapter does not interpret.
 *
 * `format` and `about` are for the next request to the provider, as in `SourceRaw`. `item` is sent back instead of
 * `data`, if it is set. */
export interface RawEvent {
  type: "raw";
  data: unknown;
  seq: number;
  format?: string | null;
  about?: "item" | "text";
  item?: unknown;
}

/** The run has ended; no event follows. `pending` holds the calls that have not run. */
export interface DoneEvent {
  type: "done";
  reason: "cancelled" | "failed" | "finished" | "stopped" | "truncated";
  finish_reason: string | null;
  raw_finish_reason: string | null;
  pending: ToolCall[];
  conversation_id?: string | null;
  seq: number;
}

/** Tags of a dialect, and the white space around them. Only the parser sends it, with `keep_markup`. */
export interface MarkupEvent {
  type: "markup";
  text: string;
  seq: number;
}

/** A text rule has matched, and the match was removed from the text or the reasoning (`where`).
 *
 * `position` and `length` count characters of the turn's text, or reasoning, as the model wrote it. The replacement
 * follows as text of `shown` characters. `fields` is what the rule reports about the match. */
export interface MatchedEvent {
  type: "matched";
  rule: string;
  action: "fail" | "mark" | "remove" | "replace" | "stop";
  position: number;
  length: number;
  shown?: number;
  fields?: Record<string, unknown> | null;
  seq: number;
  where?: "reasoning" | "text";
}

/** What a run tells its readers, one after the other. */
export type StreamEvent =
  | StartEvent
  | StepStartEvent
  | StepEndEvent
  | StepSupersededEvent
  | TextEvent
  | ReasoningEvent
  | PartialEvent
  | ThinkingEvent
  | CallStartEvent
  | CallDeltaEvent
  | CallEvent
  | ApprovalRequestedEvent
  | ExecutingEvent
  | ProgressEvent
  | ExecutedEvent
  | ErrorEvent
  | WarningEvent
  | FollowUpEvent
  | UsageReportEvent
  | RawEvent
  | DoneEvent
  | MarkupEvent
  | MatchedEvent;
