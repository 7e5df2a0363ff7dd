// For the images and folded sections of a report.

// Not all browsers open the section that contains the target of a link.
function unfold(link) {
  const folded = document.getElementById(link.hash.slice(1))?.closest("details");
  if (folded) folded.open = true;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector(".card:target .close")?.click();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("main a[href^='#']");
  if (link) unfold(link);
});
