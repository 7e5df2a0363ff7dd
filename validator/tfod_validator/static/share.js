// On the page of a report: buttons that copy what is in a field, links that open what is folded, and
// what only who has uploaded it may do. The token for that is kept by this browser, and taken out of
// the address, which people share.
const key = `tfod ${location.pathname}`;

function keepToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (!token) return;
  try {
    // The first one is right: a link that somebody has made up must not replace it.
    if (!localStorage.getItem(key)) localStorage.setItem(key, token);
  } catch {
    return; // the address keeps it
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
  document.querySelectorAll(".owner").forEach((one) => {
    one.hidden = false;
  });
  document.querySelectorAll("input[name=token]").forEach((one) => {
    one.value = token;
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
    document.execCommand("copy"); // where there is no https
  }
  button.textContent = "Copied";
  document.getElementById("live").textContent = "The link is copied";
  setTimeout(() => {
    button.textContent = "Copy";
  }, 3000);
}

// Not every browser opens what is around the target of a link.
function unfold(link) {
  const folded = document.getElementById(link.hash.slice(1))?.closest("details");
  if (folded) folded.open = true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  const link = event.target.closest("main a[href^='#']");
  if (link) unfold(link);
});
document.addEventListener("replaced", () => {
  showButtons();
  showOwners();
});
keepToken();
showButtons();
showOwners();
