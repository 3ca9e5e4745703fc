// The hash of the key in a certificate request, as the agent and `atoll accept` print it.

/** The largest request, as PEM: the hub takes none of more than 4 KiB of DER. */
const maxRequest = 8 << 10;

interface Element {
  tag: number;
  start: number;
  content: number;
  end: number;
}

/** Returns the DER element at a place; nothing where none fits. */
function elementAt(der: Uint8Array, start: number, limit: number): Element | undefined {
  if (start + 2 > limit) return undefined;
  let [content, length] = [start + 2, der[start + 1]!];
  if (length & 0x80) {
    const bytes = length & 0x7f;
    if (bytes < 1 || bytes > 2 || content + bytes > limit) return undefined;
    length = der.subarray(content, content + bytes).reduce((n, b) => n * 256 + b, 0);
    content += bytes;
  }
  return content + length > limit ? undefined : { tag: der[start]!, start, content, end: content + length };
}

const sequence = 0x30;

/** Returns the public key of a PKCS#10 request with its algorithm, in DER: what is behind the version and the subject. */
function publicKeyOf(der: Uint8Array): Uint8Array | undefined {
  const request = elementAt(der, 0, der.length);
  const info = request && elementAt(der, request.content, request.end);
  const version = info && elementAt(der, info.content, info.end);
  const subject = version && elementAt(der, version.end, info.end);
  const key = subject && elementAt(der, subject.end, info.end);
  return request?.tag === sequence && info?.tag === sequence && key?.tag === sequence ? der.subarray(key.start, key.end) : undefined;
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Returns the hash of the key in spec.request of a CertificateSigningRequest; empty where it cannot be read. */
export async function hashRequestKey(request: string): Promise<string> {
  if (request.length > maxRequest) return "";
  try {
    const pem = /^\s*-----BEGIN CERTIFICATE REQUEST-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE REQUEST-----\s*$/.exec(atob(request));
    const key = pem && publicKeyOf(decodeBase64(pem[1]!.replace(/\s/g, "")));
    if (!key) return "";
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", key.slice()));
    return "sha256:" + [...digest].map((b) => b.toString(16).padStart(2, "0")).join("");
  } catch {
    return ""; // no base64
  }
}
