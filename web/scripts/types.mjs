// Writes src/api/types.gen.ts: TypeScript types of the kinds that the console reads, from their CRDs.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

const root = fileURLToPath(new URL("../..", import.meta.url));
const target = fileURLToPath(new URL("../src/api/types.gen.ts", import.meta.url));
const kinds = { Cluster: "atoll.dev_clusters.yaml", Bundle: "atoll.dev_bundles.yaml", HubSettings: "atoll.dev_hubsettings.yaml", Repository: "atoll.dev_repositories.yaml", Source: "atoll.dev_sources.yaml" };

/** Returns the TypeScript type of an OpenAPI schema. */
function typeOf(schema, indent) {
  const inner = indent + "  ";
  if (schema["x-kubernetes-int-or-string"]) return "number | string";
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  switch (schema.type) {
    case "object": {
      if (schema.properties) {
        const required = new Set(schema.required ?? []);
        const fields = Object.entries(schema.properties).map(([name, s]) =>
          `${inner}${/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)}${required.has(name) ? "" : "?"}: ${typeOf(s, inner)};`);
        return `{\n${fields.join("\n")}\n${indent}}`;
      }
      const values = schema.additionalProperties;
      return `Record<string, ${values && values !== true ? typeOf(values, indent) : "unknown"}>`;
    }
    case "array":
      return `Array<${typeOf(schema.items, indent)}>`;
    case "integer":
    case "number":
      return "number";
    case "boolean":
    case "string":
      return schema.type;
  }
  return "unknown";
}

let out = "// Generated from api/crds by `npm run types`. Do not edit.\n\nimport type { ObjectMeta } from \"./kubernetes\";\n";
for (const [kind, file] of Object.entries(kinds)) {
  const crd = parse(readFileSync(`${root}api/crds/${file}`, "utf8"));
  const version = crd.spec.versions.find((v) => v.storage);
  const { spec, status } = version.schema.openAPIV3Schema.properties;
  out += `\nexport interface ${kind} {\n  apiVersion?: string;\n  kind?: string;\n  metadata: ObjectMeta;\n  spec: ${typeOf(spec, "  ")};\n  status?: ${typeOf(status, "  ")};\n}\n`;
}
writeFileSync(target, out);
