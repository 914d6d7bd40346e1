"use strict";
// The little that a page does by itself: sends forms as JSON, and lets Airflow's own pages open outside the frame.

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function send(address, body) {
  const answer = await fetch(address, {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const why = typeof told.detail === "string" ? told.detail : JSON.stringify(told.detail ?? answer.statusText);
    throw new Error(answer.status === 403 ? `not allowed: ${why}` : why);
  }
  return { status: answer.status, told };
}

function values(form) {
  return Object.fromEntries(new FormData(form));
}

async function post(form, say) {
  const { pipeline, checkpoint } = form.dataset;
  const body = { ...values(form), pipeline, checkpoint };
  for (;;) {
    const { status, told } = await send(form.dataset.post, body);
    say(told.message);
    if (status !== 202) break;
    // Still at work. Asking again joins what is under way.
    await pause(1500);
  }
  await pause(1200);
  location.reload();
}

function parameters(text) {
  try {
    return JSON.parse(text || "{}");
  } catch (error) {
    throw new Error(`Parameters of the restart are not JSON: ${error.message}`);
  }
}

async function recover(form, say) {
  const { pipeline, connection, checkpoint, api, then } = form.dataset;
  const given = values(form);
  const conf = {
    pipeline,
    connection,
    checkpoint,
    strategy: "id",
    reason: given.reason,
    restart_dag: given.restart_dag.trim() || null,
    restart_conf: parameters(given.restart_conf),
    approval: "approval" in given,
    dry_run: "dry_run" in given,
  };
  // Only asked for where going back means a copy.
  for (const name of ["copy_to", "file_sink"]) {
    if (given[name]) conf[name] = given[name];
  }
  const { told } = await send(api, { logical_date: null, conf });
  const link = document.createElement("a");
  link.href = then + encodeURIComponent(told.dag_run_id);
  link.dataset.airflow = "";
  link.textContent = "Open the run in Airflow";
  say(`Started ${told.dag_run_id}. `, link);
}

const ACTS = { post, recover };

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const act = ACTS[form.dataset.act];
  if (!act) return;
  event.preventDefault();
  const button = form.querySelector("button");
  const output = form.querySelector("output");
  const say = (...what) => output.replaceChildren(...what);
  output.className = "";
  button.disabled = true;
  say("At work ...");
  try {
    await act(form, say);
  } catch (error) {
    output.className = "bad";
    say(error.message);
  } finally {
    button.disabled = false;
  }
});

// Airflow has a theme of its own, which need not be that of the system.
function followTheme() {
  const around = window.parent.document.documentElement;
  const follow = () => {
    const theme = ["dark", "light"].find((name) => around.classList.contains(name));
    if (theme) document.documentElement.dataset.theme = theme;
  };
  follow();
  new MutationObserver(follow).observe(around, { attributes: true, attributeFilter: ["class"] });
}
if (window.parent !== window) followTheme();

// In Airflow these pages live in a frame, in which Airflow itself would look odd: its links open around it.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || window.parent === window) return;
  event.preventDefault();
  const outside = window.parent.document.createElement("a");
  outside.href = link.href;
  outside.click();
});
