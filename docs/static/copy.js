// A button at each block of code copies it: of a transcript the commands, without their prompts.
for (const block of document.querySelectorAll("div.highlight")) {
  const button = block.appendChild(document.createElement("button"));
  Object.assign(button, {type: "button", className: "copy", textContent: "Copy"});
  button.addEventListener("click", async () => {
    const text = block.querySelector("td.code pre, pre:not(.linenos *)").textContent;
    const commands = text.split("\n").filter(line => line.startsWith("$ ")).map(line => line.slice(2));
    try {
      await navigator.clipboard.writeText(commands.length ? commands.join("\n") : text);
      button.textContent = "Copied";
    } catch { button.textContent = "Not allowed by the browser"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
