// The state of a run: one function returns the next state for a state and an event. It changes no object. Parts that an
// event does not change remain the same objects, so that an interface can find the parts to draw again.
/** The answer before its first event. */
export const emptyTurn = {
    run: null,
    seq: 0,
    state: "waiting",
    step: 0,
    parts: [],
    thinking: false,
    output: undefined,
    usage: null,
    gap: false,
    reconnecting: false,
    failure: null,
    done: null,
};
/** Returns the turn after an event. For an event that it already contains, returns the same turn. */
export function reduce(turn, event) {
    if (event.seq && event.seq <= turn.seq)
        return turn;
    const next = turn.state === "waiting" && event.type !== "start" ? "answering" : turn.state;
    const reconnecting = isOwnerLost(event) || (turn.reconnecting && AFTER_LOSS.has(event.type));
    const state = event.type === "done" ? {} : { state: next };
    return { ...change(turn, event), ...state, reconnecting, seq: event.seq || turn.seq };
}
// The next process sends these events before it continues: they end a call that was being written.
const AFTER_LOSS = new Set(["warning", "error", "partial", "thinking"]);
function isOwnerLost(event) {
    return event.type === "warning" && event.code === "owner_lost";
}
function change(turn, event) {
    switch (event.type) {
        case "start":
            return { ...turn, run: event.run_id };
        case "step-start":
            return { ...turn, step: event.step };
        case "step-superseded":
            return { ...turn, parts: turn.parts.filter((part) => part.step !== event.step) };
        case "text":
        case "reasoning":
            return say(turn, event.type, event.text);
        case "thinking": {
            const known = event.active && event.call_id ? update(turn, event.call_id, () => ({})) : turn;
            return { ...known, thinking: event.active && (event.call_id ?? true) };
        }
        case "call-start":
            return update(turn, event.call_id, () => ({ name: event.name }));
        case "call-delta":
            return update(turn, event.call_id, ({ written }) => ({ written: written + event.text }));
        case "call":
            return know(turn, event.call, { state: "ready" });
        case "approval-requested":
            return know(turn, event.call, {
                state: "asking",
                digest: event.digest ?? null,
                expires: event.expires ?? null,
            });
        case "executing":
            return know(turn, event.call, { state: "executing" });
        case "progress":
            return update(turn, event.call_id, () => ({ progress: event.data }));
        case "executed": {
            const { result, message, elapsed } = event;
            return know(turn, event.call, { state: "executed", result, message, elapsed });
        }
        case "error":
            return event.call_id ? fail(turn, event, event.call_id) : { ...turn, failure: event };
        case "partial":
            if (event.call_id)
                return turn;
            return { ...turn, output: grow(turn.output, event.path, event) };
        case "usage":
            return { ...turn, usage: add(turn.usage, event.usage) };
        case "raw": {
            const files = filesOf(event.data).map((url) => ({ kind: "file", step: turn.step, url }));
            return files.length ? { ...turn, parts: [...turn.parts, ...files] } : turn;
        }
        case "warning":
            return event.code === "resync" ? { ...turn, gap: true } : turn;
        case "done": {
            const parts = turn.parts.map((part) => (part.kind === "call" && isOpen(part) ? leave(part, event) : part));
            return { ...turn, parts, thinking: false, state: event.reason, done: event };
        }
        default: // an event for developers, or of a later version
            return turn;
    }
}
// Each provider sends files in another form; see `outputs/front_end.py`.
function filesOf(data) {
    if (typeof data !== "object" || data === null)
        return [];
    const { type, inlineData, image, result, url } = data;
    const listed = data.choices?.[0]?.delta?.images ?? data.images ?? (type === "model_output" ? data.content : []);
    const found = [
        inlineData && holding(inlineData.data, inlineData.mimeType), // Gemini
        type === "image_generation_call" && holding(result), // Responses
        image?.source && holding(image.source.bytes, `image/${image.format}`), // Bedrock
        type === "file" && url, // the AI SDK
        // OpenRouter, Interactions, Ollama
        ...(Array.isArray(listed) ? listed : []).map((each) => each?.image_url?.url ?? holding(each?.data ?? each, each?.mime_type)),
    ];
    return found.filter((each) => typeof each === "string" && /^(?:data|https):/.test(each));
}
function holding(data, kind) {
    if (typeof data !== "string" || !data)
        return "";
    const known = { "/9j/": "jpeg", R0lG: "gif", UklG: "webp" }[data.slice(0, 4)] ?? "png"; // the beginnings in Base64
    return `data:${typeof kind === "string" ? kind : `image/${known}`};base64,${data}`;
}
function say(turn, kind, text) {
    if (!text)
        return turn;
    const last = turn.parts.at(-1);
    if (last?.kind === kind && last.step === turn.step) {
        return { ...turn, parts: turn.parts.with(-1, { ...last, text: last.text + text }) };
    }
    return { ...turn, parts: [...turn.parts, { kind, step: turn.step, text }] };
}
function update(turn, id, changes) {
    const at = turn.parts.findLastIndex((part) => part.kind === "call" && part.id === id);
    const part = turn.parts[at];
    if (part?.kind === "call")
        return { ...turn, parts: turn.parts.with(at, { ...part, ...changes(part) }) };
    const made = unknownCall(id, turn.step);
    return { ...turn, parts: [...turn.parts, { ...made, ...changes(made) }] };
}
function unknownCall(id, step) {
    const nothing = { name: null, call: null, digest: null, expires: null, message: null, code: null, raw: null };
    const open = { written: "", progress: undefined, result: undefined, elapsed: null };
    return { kind: "call", step, id, state: "writing", ...nothing, ...open };
}
function know(turn, call, changes) {
    return update(turn, call.id, () => ({ call, name: call.name, ...changes }));
}
function fail(turn, { code, message, raw, call }, id) {
    const state = code === "tool_denied" ? "denied" : "failed";
    const known = call ? { call, name: call.name } : {};
    return update(turn, id, () => ({ ...known, state, code, message, raw: raw ?? null }));
}
function isOpen({ state }) {
    return state !== "executed" && state !== "failed" && state !== "denied";
}
function leave(part, { pending }) {
    return { ...part, state: pending.some(({ id }) => id === part.id) ? "pending" : "failed" };
}
/** Returns a value with an addition at a path. Text is appended, and other values replace. Complete values stay. */
function grow(value, path, added) {
    const [key, ...rest] = path;
    if (key === undefined) {
        if (typeof added.value === "string" && typeof value === "string")
            return value + added.value;
        const stands = added.complete && typeof added.value === "object" && typeof value === "object" && value !== null;
        return stands ? value : added.value;
    }
    const grown = Array.isArray(value) ? [...value] : { ...value };
    const inside = Object.hasOwn(grown, key) ? grown[key] : undefined;
    const made = { value: grow(inside, rest, added), configurable: true, enumerable: true, writable: true };
    return Object.defineProperty(grown, key, made); // also `__proto__`, which a model may write
}
function add(sum, usage) {
    const added = { ...sum };
    for (const name of ["input", "output", "total", "cache_read", "cache_write", "reasoning", "cost"]) {
        if (usage[name] != null)
            added[name] = (added[name] ?? 0) + usage[name];
    }
    return added;
}
//# sourceMappingURL=turn.js.map