"use strict";
// The texts for events. The codes are shown next to them.

const UNSUCCESSFUL = {
  unknown_tool: "There is no such tool",
  tool_input: "The arguments are not valid for the tool",
  tool_failed: "The tool failed",
  tool_timeout: "The tool took too long",
  tool_denied: "Denied",
  tool_cancelled: "Stopped while the tool was running",
  tool_output: "The tool returned an invalid value",
  outcome_unknown: "It is unknown what the tool has done",
  tool_choice_violation: "The model was not allowed to call this",
  superseded: "Another call replaces it",
  truncated: "Cut off, so it was not run",
  invalid_json: "Not valid JSON, so it was not run",
};

const CUT = {
  length: "The answer is cut off: it reached the limit of its length.",
  content_filter: "The answer is cut off: the provider's content filter stopped it.",
};

const LIMITS = {
  max_steps: "Stopped: the limit of steps is reached.",
  repeated_call: "Stopped: the model kept making the same call.",
  call_limit: "Stopped: the limit of calls is reached.",
  failed_turns: "Stopped: too many turns in a row failed.",
  token_limit: "Stopped: the limit of tokens is reached.",
  time_limit: "Stopped: the limit of time is reached.",
  tool_stop: "Stopped: a tool ended the answer.",
};

// Returns how a run ended, or "" for a normal end.
function ending(done, failure) {
  switch (done.reason) {
    case "finished": return "";
    case "truncated": return CUT[done.finish_reason] || "The answer is cut off.";
    case "failed": return failure ? sentence(`The answer failed: ${failure}`) : "The answer failed.";
    case "stopped": return LIMITS[done.finish_reason] || `Stopped: ${done.finish_reason}.`;
    case "cancelled": return "The answer was stopped.";
    default: return `The answer ended: ${done.reason}.`;
  }
}

function sentence(text) {
  text = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

function countOf(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

function seconds(elapsed) {
  if (elapsed < 0.0095) return "under 10 ms";
  return elapsed < 1 ? `${Math.round(elapsed * 1000)} ms` : `${elapsed.toFixed(1)} s`;
}

// Returns arguments on one line, cropped.
function brief(value, length = 90) {
  const pairs = Object.entries(value ?? {}).map(([name, each]) => `${name}: ${JSON.stringify(each)}`);
  return crop(pairs.join(", "), length);
}

function crop(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
