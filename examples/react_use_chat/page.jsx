import { useChat } from "@ai-sdk/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

function Weather({ part }) {
  if (part.state === "output-available") return <p className="call">{`${part.output.city}: ${part.output.degrees} °C`}</p>;
  if (part.state === "output-error") return <p className="call">{part.errorText}</p>;
  return <p className="call">Looking …</p>;
}

function Part({ part }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "tool-get_weather") return <Weather part={part} />;
  return null; // the beginnings of steps
}

function Page() {
  const { messages, sendMessage, status, stop, error } = useChat();
  const [text, setText] = useState("What is the weather in Paris?");
  const busy = status === "submitted" || status === "streaming";
  const submit = (event) => {
    event.preventDefault();
    sendMessage({ text });
    setText("");
  };
  return (
    <main data-status={status}>
      {messages.map(({ id, role, parts }) => (
        <section key={id} className={role}>
          {parts.map((part, index) => (
            <Part key={index} part={part} />
          ))}
        </section>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input aria-label="Message" value={text} onChange={({ target }) => setText(target.value)} required />
        {busy ? <button type="button" onClick={stop}>Stop</button> : <button>Send</button>}
      </form>
    </main>
  );
}

createRoot(document.getElementById("page")).render(<Page />);
