// Opens the viewer on the page of "tfod show --serve".
import { showViewer } from "./viewer.js";

showViewer(document.getElementById("viewer"), async (method, values) => {
  let response;
  try {
    response = await fetch(`${method}?${encodeURIComponent(JSON.stringify(values))}`);
  } catch {
    throw new Error("tfod show has ended. Start it again, and open the new address.");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
});
