// A gateway of its own in front of an emulator: private port and state, stopped at the end.
import { spawn, spawnSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const program = join(process.env.SANDGATE_BUILD ?? "", "server", "sandgate");

// Nothing of this machine's settings reaches it.
function settings(more) {
  const kept = Object.entries(process.env).filter(([k]) => !/^(SANDGATE_|VERCEL_)|proxy/i.test(k));
  return { ...Object.fromEntries(kept), ...more };
}

export async function startGateway(emulator) {
  const dir = await mkdtemp(join(tmpdir(), "sandgate-interop-gateway-"));
  const tokens = join(dir, "tokens");
  const made = spawnSync(program, ["token", "create", "--name", "test", "--tokens", tokens], { encoding: "utf8", env: settings() });
  if (made.status !== 0) throw new Error(made.stderr);
  const token = made.stdout.split(/\s+/).find((w) => w.startsWith("sgt_"));
  await writeFile(join(dir, "upstream-token"), emulator.token + "\n", { mode: 0o600 });
  const child = spawn(program, ["serve"], {
    stdio: ["ignore", "inherit", "pipe"],
    cwd: dir,
    env: settings({
      SANDGATE_SERVER_LISTEN: "127.0.0.1:0", SANDGATE_AUTH_TOKENS_FILE: tokens, SANDGATE_UPSTREAM_URL: emulator.url,
      SANDGATE_UPSTREAM_TOKEN_FILE: join(dir, "upstream-token"), SANDGATE_UPSTREAM_TEAM_ID: "team_local",
      SANDGATE_UPSTREAM_PROJECT_ID: "prj_local", SANDGATE_STORE_STATE_FILE: join(dir, "state.db"),
    }),
  });
  const log = [];
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      if (line.includes('"listening"')) resolve(JSON.parse(line).url);
    });
    ended.then((how) => reject(new Error(`the gateway ended: ${JSON.stringify(how)}\n${log.join("\n")}`)));
  });
  // One call of the API: status and parsed body.
  const call = async (method, path, body) => {
    const response = await fetch(url + path, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, text, json: text ? JSON.parse(text) : undefined };
  };
  const stop = async () => {
    child.kill("SIGTERM");
    const how = await ended;
    await rm(dir, { recursive: true, force: true });
    return { ...how, log: log.join("\n") };
  };
  return { url, token, call, stop };
}
