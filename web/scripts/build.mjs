// Builds the console's files into the directory that is named, or into bin/console. Names have the hash of the
// content, so that a browser may keep them for ever. The same sources give the same bytes on every machine.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const web = fileURLToPath(new URL("..", import.meta.url));
const out = process.argv[2] ?? web + "../bin/console";

// The policy of the page refuses style elements and attributes. The screen of the terminal gets constructed style sheets and
// properties in their place. Another version of the library, with other places, fails the build.
const withoutInlineStyles = {
  name: "without-inline-styles",
  setup: (b) => b.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
    let text = readFileSync(path, "utf8");
    for (const [pattern, replacement, places] of [
      [/[\w.]+\.createElement\("style"\)/g, "createTerminalStyle()", 3],
      [/(\w+)\.setAttribute\("style",`\$\{\1\.getAttribute\("style"\)\|\|""\}\$\{(\w+)\};`\)/g, "$1.style.cssText+=$2", 1],
    ]) {
      const found = text.match(pattern)?.length ?? 0;
      if (found !== places) throw new Error(`${path} has ${found} places of ${pattern}, not ${places}: read them, and change scripts/build.mjs`);
      text = text.replace(pattern, replacement);
    }
    if (/setAttribute\("style"|createElement\("style"|innerHTML|insertAdjacentHTML/.test(text)) throw new Error(`${path} makes markup or inline styles`);
    return { contents: `import { createStyle as createTerminalStyle } from "${web}src/terminal/sheet.ts";\n${text}`, loader: "js" };
  }),
};

const bundle = async (entry, options = {}) => {
  const result = await build({
    entryPoints: [web + "src/" + entry], absWorkingDir: web, bundle: true, write: false, minify: true, format: "esm", target: "es2022", charset: "utf8", legalComments: "none",
    jsx: "automatic", jsxImportSource: "preact", outdir: out, logLevel: "warning", ...options,
  });
  return Buffer.from(result.outputFiles[0].contents);
};

const named = (name, content) => {
  const [base, ending] = name.split(".");
  return `${base}-${createHash("sha256").update(content).digest("hex").slice(0, 12)}.${ending}`;
};

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
// The screen of the terminal is a file of its own, which the page loads when the first terminal is opened.
const screen = await bundle("terminal/xterm.ts", { plugins: [withoutInlineStyles] });
const screenFile = named("terminal.js", screen);
writeFileSync(`${out}/${screenFile}`, screen);
const main = await bundle("main.tsx", { define: { TERMINAL_FILE: JSON.stringify("./" + screenFile) }, external: ["./terminal-*"] });
const contents = { script: ["app.js", main], style: ["app.css", await bundle("style.css")], icon: ["icon.svg", readFileSync(web + "src/icon.svg")] };
let page = readFileSync(web + "src/index.html", "utf8");
for (const [key, [name, content]] of Object.entries(contents)) {
  const file = named(name, content);
  page = page.replace(`{{${key}}}`, file);
  writeFileSync(`${out}/${file}`, content);
}
writeFileSync(`${out}/index.html`, page);
