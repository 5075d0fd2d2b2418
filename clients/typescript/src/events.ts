// Written by `python -m tests.whole.event_types`, of the JSON schema of the events; do not edit.

/** A complete, well-formed call, whichever way it was written.
 *
 * `dialect` is how it was written, `NATIVE` for one that the provider sent beside the text. `raw` is the exact text
 * that was hidden from the reader, markers included; several calls from one array share out that text between them,
 * and native calls have none, but for malformed ones of a history, whose `raw` is what stood for their arguments.
 * `provider_id` is an id that the model or the provider wrote; `id` is unique in the run. `signature` is a provider's
 * own, and goes back to it unchanged with the call; so does `own`, what it put beside the call, by its format. */
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

/** Tokens of one provider turn, or of a run. None means that the provider does not tell.
 *
 * `input` includes what was read from a cache, `output` includes reasoning. `cost` is what the provider charges, in
 * its own currency, where it tells (OpenRouter: US dollars). */
export interface Usage {
  input?: number | null;
  output?: number | null;
  total?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  reasoning?: number | null;
  cost?: number | null;
}

/** The run begins; comes before the first byte is read. */
export interface StartEvent {
  type: "start";
  run_id: string;
  seq: number;
}

/** A provider's turn begins; the first is step 1.
 *
 * `format` is that of the messages of its provider, where the source tells: whose signatures those of the turn are. */
export interface StepStartEvent {
  type: "step-start";
  step: number;
  seq: number;
  format?: string | null;
}

/** A provider's turn has ended, and so have the executions of its calls.
 *
 * `response_id` and `model` are the provider's names for its answer and for the model that gave it, where it tells. */
export interface StepEndEvent {
  type: "step-end";
  step: number;
  finish_reason: string | null;
  seq: number;
  response_id?: string | null;
  model?: string | null;
}

/** The last step broke off and is discarded: another model starts the answer again.
 *
 * An interface takes back what it has shown of it; the history leaves it out. No call of it has run. */
export interface StepSupersededEvent {
  type: "step-superseded";
  step: number;
  seq: number;
}

/** Text for the reader. */
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
 * With a `call_id`, it is the arguments of that call which have (`call_partials`). A string grows by pieces; a number,
 * true, false and null come whole; an object or an array begins empty, and its members and items follow with paths of
 * their own. `complete`: nothing more comes at `path`, and of an object or an array nothing was added. */
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

/** The name of the call that is being written is known. */
export interface CallStartEvent {
  type: "call-start";
  call_id: string;
  name: string;
  seq: number;
}

/** A piece of the arguments as JSON text; joined, they are what the model wrote. */
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
 * An approval that brings the `digest` back is one of exactly this call. */
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

/** The tool has returned. `message` is the `message` of the result, if it has one; `elapsed` is in seconds. */
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
 * `message` may be shown. `raw` is the text of a malformed call and `dialect` its way of writing; `call` is the call
 * where it was well formed. */
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

/** The messages that go to the model next; encoders leave this event out by default.
 *
 * Where rules have taken something out of them, `written` are those that the model gets. */
export interface FollowUpEvent {
  type: "follow-up";
  messages: Record<string, unknown>[];
  seq: number;
}

/** Token usage of the ending turn; one event for each model, with its name, if several answered. */
export interface UsageReportEvent {
  type: "usage";
  usage: Usage;
  seq: number;
  model?: string | null;
}

/** Provider data that the adapter does not interpret.
 *
 * `format` and `about` are for the next request to the provider, as in `SourceRaw`; `item` is what goes back if that
 * is not `data`. */
export interface RawEvent {
  type: "raw";
  data: unknown;
  seq: number;
  format?: string | null;
  about?: "item" | "text";
  item?: unknown;
}

/** The run has ended; nothing follows. `pending` holds the calls that nobody has run. */
export interface DoneEvent {
  type: "done";
  reason: "cancelled" | "failed" | "finished" | "stopped" | "truncated";
  finish_reason: string | null;
  raw_finish_reason: string | null;
  pending: ToolCall[];
  conversation_id?: string | null;
  seq: number;
}

/** A dialect's own tags and the white space around them; only with `keep_markup`, and only from the parser. */
export interface MarkupEvent {
  type: "markup";
  text: string;
  seq: number;
}

/** One of the `text_rules` has matched, and the match was taken out of the text.
 *
 * `position` counts the characters of the turn's text as the model wrote it, and `length` those of the match; what is
 * shown in its place follows, of `shown` characters. `fields` are what the rule tells of it. With
 * `where="reasoning"`, all of this is about what the model thinks. */
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
