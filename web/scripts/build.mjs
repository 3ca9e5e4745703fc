// Builds the console's files into the directory that is named, or into bin/console. Names have the hash of the
// content, so that a browser may keep them for ever. The same sources give the same bytes on every machine.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = fileURLToPath(new URL("..", import.meta.url));
const out = process.argv[2] ?? web + "../bin/console";

const bundle = async (entry) => {
  const result = await build({
    entryPoints: [web + "src/" + entry], absWorkingDir: web, bundle: true, write: false, minify: true, format: "esm", target: "es2022", charset: "utf8", legalComments: "none",
    jsx: "automatic", jsxImportSource: "preact", outdir: out, logLevel: "warning",
  });
  return Buffer.from(result.outputFiles[0].contents);
};

const named = (name, content) => {
  const [base, ending] = name.split(".");
  return `${base}-${createHash("sha256").update(content).digest("hex").slice(0, 12)}.${ending}`;
};

const contents = { script: ["app.js", await bundle("main.tsx")], style: ["app.css", await bundle("style.css")], icon: ["icon.svg", readFileSync(web + "src/icon.svg")] };
let page = readFileSync(web + "src/index.html", "utf8");
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
for (const [key, [name, content]] of Object.entries(contents)) {
  const file = named(name, content);
  page = page.replace(`{{${key}}}`, file);
  writeFileSync(`${out}/${file}`, content);
}
writeFileSync(`${out}/index.html`, page);
