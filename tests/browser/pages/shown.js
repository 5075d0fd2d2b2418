// What the pages show, in one form: each message with its text and its calls, whoever keeps them.

const element = (name, attributes, ...children) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
};

function showCall({ name, input, state, told, approve, deny, pick }, disabled) {
  const words = element("code", { textContent: `${name} ${input} → ${told ?? ""}` });
  const shown = element("div", { className: "call" }, words);
  const add = (textContent, onclick) => shown.append(element("button", { textContent, onclick, disabled }));
  shown.dataset.state = state;
  if (state === "asks") {
    add("Approve", approve);
    add("Deny", deny);
  }
  if (state === "waits" && name === "pick_date") add("Pick", pick);
  return shown;
}

// Shows `messages`: [{role, thought, text, calls: [{name, input, state, told, approve, deny, pick}]}].
export function show(messages, status, fault, send, stop) {
  const list = messages.map(({ role, thought = "", text, calls }) => {
    const shown = element("section", { className: "message" }, element("i", { textContent: thought }), element("p", { textContent: text }));
    shown.append(...calls.map((call) => showCall(call, status !== "ready" && status !== "answering")));
    shown.dataset.role = role;
    return shown;
  });
  const box = element("input", { id: "question" });
  const form = element("form", {}, box);
  form.onsubmit = (event) => {
    event.preventDefault();
    send(box.value);
  };
  const button = element("button", { textContent: "Stop", onclick: stop, disabled: status === "ready" });
  document.body.replaceChildren(...list, fault ?? "", form, button);
  document.body.dataset.status = status;
}
