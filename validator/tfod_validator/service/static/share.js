// Buttons that copy what is in a field.
function showButtons() {
  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = false;
  });
}

async function copy(button) {
  const field = document.getElementById(button.dataset.copy);
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    document.execCommand("copy"); // where there is no https
  }
  button.textContent = "Copied";
  document.getElementById("live").textContent = "The link is copied";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 3000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
document.addEventListener("replaced", showButtons);
showButtons();
