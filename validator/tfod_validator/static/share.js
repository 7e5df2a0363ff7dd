// For the page of a report: copy buttons, and the actions of the user who uploaded the files. Their
// token is stored in this browser and removed from the URL, which people share.
import "./cards.js";

const key = `tfod ${location.pathname}`;

function keepToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (!token) return;
  try {
    // Keep the first token: a forged link must not replace it.
    if (!localStorage.getItem(key)) localStorage.setItem(key, token);
  } catch {
    return; // leave it in the URL
  }
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

function storedToken() {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function showOwners() {
  const token = storedToken();
  if (!token) return;
  document.querySelectorAll(".owner").forEach((element) => {
    element.hidden = false;
  });
  document.querySelectorAll("input[name=token]").forEach((input) => {
    input.value = token;
  });
}

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
    document.execCommand("copy"); // without https
  }
  button.textContent = "Copied";
  document.getElementById("live").textContent = "The link was copied";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 3000);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});
document.addEventListener("replaced", () => {
  showButtons();
  showOwners();
});
keepToken();
showButtons();
showOwners();
