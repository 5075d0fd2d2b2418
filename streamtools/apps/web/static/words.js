"use strict";
// The texts that the page shows for events.

const CUT = {
  length: "The answer is cut off: it reached the maximum length.",
  content_filter: "The answer is cut off: the provider's content filter stopped it.",
};

const LIMITS = {
  max_steps: "Stopped: the maximum number of steps was reached.",
  repeated_call: "Stopped: the model repeated the same call.",
  call_limit: "Stopped: the maximum number of calls was reached.",
  failed_turns: "Stopped: too many turns in a row failed.",
  token_limit: "Stopped: the maximum number of tokens was reached.",
  size_limit: "Stopped: the answer is too large.",
  time_limit: "Stopped: the time limit was reached.",
  tool_stop: "Stopped: a tool ended the answer.",
};

// Returns a sentence about the end of a run, or "" if it finished or waits for a decision.
function ending(done, failure) {
  switch (done.reason) {
    case "finished": case "waiting": return "";
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

const CROP = 90; // characters of arguments or a result that a card shows

// Returns a value on one line.
function oneLine(value) {
  return (typeof value === "string" ? value : JSON.stringify(value) ?? "null").replace(/\s+/g, " ");
}

// Returns arguments on one line, cropped.
function brief(value, length = CROP) {
  const pairs = Object.entries(value ?? {}).map(([name, each]) => `${name}: ${JSON.stringify(each)}`);
  return crop(pairs.join(", "), length);
}

function crop(text, length) {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
