// Server-sent events, however the network cuts them, into the events that they hold.
/** Splits text that comes in pieces into the data of server-sent events; the work is linear in the text. */
export class FrameReader {
    #pieces = []; // of the line that has not ended
    #data = []; // of the frame that has not ended
    #cr = false; // the last piece ended with a CR, to which an LF may still belong
    /** Returns the data of each frame that `text` completes. */
    feed(text) {
        if (!text)
            return [];
        if (this.#cr && text.startsWith("\n"))
            text = text.slice(1);
        this.#cr = text.endsWith("\r");
        const frames = [];
        const lines = text.split(/\r\n|\n|\r/);
        const rest = lines.pop() ?? "";
        for (const line of lines) {
            const whole = this.#pieces.length ? this.#pieces.join("") + line : line;
            this.#pieces = [];
            if (whole === "") {
                if (this.#data.length)
                    frames.push(this.#data.join("\n"));
                this.#data = [];
            }
            else if (whole.startsWith("data:")) {
                this.#data.push(whole.slice(whole[5] === " " ? 6 : 5));
            }
        }
        if (rest)
            this.#pieces.push(rest);
        return frames;
    }
}
/**
 * Gives the events in the body of a response, until it ends; leaving the loop closes the connection.
 *
 * It reads by `getReader`, because Safari's bodies are no async iterables.
 */
export async function* readEvents(body) {
    const reader = body.getReader();
    const words = new TextDecoder();
    const frames = new FrameReader();
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done)
                return;
            for (const data of frames.feed(words.decode(value, { stream: true })))
                yield JSON.parse(data);
        }
    }
    finally {
        await reader.cancel().catch(() => { }); // of a body that has ended, or broken off, there is nothing left to cancel
    }
}
//# sourceMappingURL=frames.js.map