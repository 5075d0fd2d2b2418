// Written by `python -m tests.whole.event_types`, of the JSON schema of the events; do not edit.

/** A complete, well-formed call.
 *
 * - `id` is unique in the run. `provider_id` is the id that the model or the provider sent, or None.
 * - `dialect` is the syntax of a call in text, or `"native"` if the provider sent the call separately from the text.
 * - `raw` is the exact text of a call in text, including its markers. If the model wrote several calls as one array,
 * each call has a part of the array's text. For a native call, `raw` is empty. The only exception is a malformed
 * native call in a history, where `raw` is the text of the arguments.
 * - `repaired` is true if the JSON had a fault that was repaired.
 * - `signature` must be in the next request to the provider, unchanged. `own` maps a message format to other fields
 * of the call that the next request must contain. */
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
  | "frame_refused"
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
  | "owner_lost"
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
  | "unknown_placeholder"
  | "unknown_tool"
  | "unrecognised_tool_call"
  | "upstream_error";

/** Token counts of one provider turn or of a run. A value is None if the provider does not report it.
 *
 * This is no event: `UsageReport` is the event, and has a `Usage` in its field `usage`.
 *
 * `input` includes tokens read from a cache or written to it. `output` includes reasoning. `cost` is the price in the
 * currency of the provider. OpenRouter, for example, reports it in US dollars. */
export interface Usage {
  input?: number | null;
  output?: number | null;
  total?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  reasoning?: number | null;
  cost?: number | null;
}

/** The run starts. No data has been read from the provider yet. */
export interface StartEvent {
  type: "start";
  run_id: string;
  seq: number;
}

/** A step starts. It consists of one turn of the model and the execution of its calls. Steps are counted from 1.
 *
 * `format` is the message format of the provider, or None if the source does not know it. Only a request in this
 * format may contain the signatures of the turn. */
export interface StepStartEvent {
  type: "step-start";
  step: number;
  seq: number;
  format?: string | null;
}

/** A step has ended: the turn of the model is complete, and so is the execution of its calls.
 *
 * `response_id` and `model` are the provider's id of the response and its name for the model. Each may be None. */
export interface StepEndEvent {
  type: "step-end";
  step: number;
  finish_reason: string | null;
  seq: number;
  response_id?: string | null;
  model?: string | null;
}

/** The last step failed and is discarded. Another model generates the response from the beginning.
 *
 * An interface must remove the content of the step. The history does not contain it. None of its calls has run. */
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
 * `signature`, `id`, `redacted` and `own` are for the next request to the provider. `ReasoningDelta` explains them. */
export interface ReasoningEvent {
  type: "reasoning";
  text: string;
  seq: number;
  signature?: string | null;
  id?: string | null;
  redacted?: boolean;
  own?: Record<string, unknown> | null;
}

/** The typed answer (option `output`) has grown: `value` was added at `path`.
 *
 * If `call_id` is set, the arguments of that call have grown instead. Such events need the option `call_partials`.
 *
 * A string arrives in pieces. A number, true, false or null arrives complete. An object or an array is first added
 * empty. Its members or items follow in later events with longer paths. If `complete` is true, the value at `path` is
 * complete. The event that completes an object or an array adds nothing to the value. */
export interface PartialEvent {
  type: "partial";
  path: (string | number)[];
  value: unknown;
  complete?: boolean;
  seq: number;
  call_id?: string | null;
}

/** The model has started to write a call (`active` is true) or has finished it.
 *
 * An interface can show a spinner while the model writes a call. */
export interface ThinkingEvent {
  type: "thinking";
  active: boolean;
  call_id?: string | null;
  seq: number;
}

/** The name of a call is known. The model is still writing the call. */
export interface CallStartEvent {
  type: "call-start";
  call_id: string;
  name: string;
  seq: number;
}

/** A piece of the arguments of a call, as JSON text. All pieces together are the text that the model wrote. */
export interface CallDeltaEvent {
  type: "call-delta";
  call_id: string;
  text: string;
  seq: number;
}

/** A call is complete and well-formed. */
export interface CallEvent {
  type: "call";
  call: ToolCall;
  seq: number;
}

/** The call needs approval before `expires` (seconds since 1970).
 *
 * `digest` identifies the name and the arguments of the call. An approval with this digest applies only to this call. */
export interface ApprovalRequestedEvent {
  type: "approval-requested";
  call: ToolCall;
  expires?: number | null;
  seq: number;
  digest?: string;
}

/** The call has started. If its arguments are invalid or its tool is unknown, an `error` follows.
 *
 * If `client` is true, the front end must now execute the call, and send its result. */
export interface ExecutingEvent {
  type: "executing";
  call: ToolCall;
  seq: number;
  client?: boolean;
}

/** Progress data from a running tool. It is not sent to the model. */
export interface ProgressEvent {
  type: "progress";
  call_id: string;
  data: unknown;
  seq: number;
}

/** The tool has returned. `message` is the `message` field of the result, or None. `elapsed` is in seconds. */
export interface ExecutedEvent {
  type: "executed";
  call: ToolCall;
  result: unknown;
  message: string | null;
  elapsed: number;
  seq: number;
}

/** A call failed or does not run, or the whole stream failed. `call_id` is None if the stream failed.
 *
 * `message` may be shown to users. `call` is the call, if it is well-formed. `raw` is the text of a malformed call,
 * and `dialect` its dialect. `status` is the HTTP status of a failed request to the provider. */
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

/** A diagnosis for developers. Its `message` should not be shown to users.
 *
 * `raw` is the text or data that caused the warning. `count` is a number for the message, such as the length of
 * skipped data. */
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
 * If text rules have changed the messages, `written` holds the original messages, which the model receives. */
export interface FollowUpEvent {
  type: "follow-up";
  messages: Record<string, unknown>[];
  seq: number;
}

/** Token usage of the turn that ends. If several models were used, each has an event with its name in `model`. */
export interface UsageReportEvent {
  type: "usage";
  usage: Usage;
  seq: number;
  model?: string | null;
}

/** Provider data that the adapter does not interpret.
 *
 * `format` and `about` are for the next request to the provider. `SourceRaw` explains them. If `item` is set, the next
 * request contains it instead of `data`. */
export interface RawEvent {
  type: "raw";
  data: unknown;
  seq: number;
  format?: string | null;
  about?: "item" | "text";
  item?: unknown;
}

/** The run has ended. This is its last event. `pending` holds the calls that have not run.
 *
 * `client` has the ids of the pending calls that the front end must now execute. Only a run with the reason `waiting`
 * has any. Its other calls wait for an approval, or a limit has stopped them. */
export interface DoneEvent {
  type: "done";
  reason: "cancelled" | "failed" | "finished" | "stopped" | "truncated" | "waiting";
  finish_reason: string | null;
  raw_finish_reason: string | null;
  pending: ToolCall[];
  conversation_id?: string | null;
  seq: number;
  client?: string[];
}

/** Tags of a dialect with the white space around them. Only a parser with `keep_markup` returns this event. */
export interface MarkupEvent {
  type: "markup";
  text: string;
  seq: number;
}

/** A text rule has matched, and the match was removed from the text or the reasoning (`where`).
 *
 * `position` is the start of the match in the original text or reasoning of the turn. `length` is the length of the
 * match. Both are in characters. The replacement follows as a text of `shown` characters. `fields` holds the data that
 * the rule reports about the match. */
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
