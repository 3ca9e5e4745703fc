// Runs the unit tests: bundles each file of test/ by esbuild, and runs them by Node's own runner.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = fileURLToPath(new URL("..", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "atoll-console-test-"));
try {
  const entryPoints = readdirSync(web + "test").filter((f) => f.endsWith(".test.ts")).map((f) => web + "test/" + f);
  await build({ entryPoints, absWorkingDir: web, bundle: true, outdir: out, outExtension: { ".js": ".mjs" }, format: "esm", platform: "node", target: "node20", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning", alias: { yaml: web + "node_modules/yaml/browser/index.js" } }); // yaml as the browser gets it
  const files = readdirSync(out).map((f) => join(out, f));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
