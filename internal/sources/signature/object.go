package signature

import (
	"bytes"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// VerifyCommit returns the signer of a commit. Raw is the commit as git hashes it, and tree the hash of its files. A commit in
// which readers could find another tree or another signature is refused.
func (k *TrustedKeys) VerifyCommit(raw []byte, tree string, now time.Time) (Signer, error) {
	if len(raw) > MaxObjectBytes {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the commit has more than %d bytes", MaxObjectBytes)
	}
	o, err := splitCommit(raw, tree)
	if err != nil {
		return "", err
	}
	return k.verifyObject(o, now)
}

// signatureHeader is the header of a commit with its signature. Further lines begin with a space.
const signatureHeader = "gpgsig"

// splitCommit returns what the signature of a commit is of: all of the commit without the signature.
func splitCommit(raw []byte, tree string) (signedObject, error) {
	o := signedObject{noun: "commit"}
	malformed := newRefusal(atoll.ReasonSignatureInvalid, "the commit is not of the form of git")
	rest, counts, inSignature := raw, map[string]int{}, false
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return o, malformed
		}
		line := rest[:end+1]
		rest = rest[end+1:]
		if len(line) == 1 {
			o.payload = append(append(o.payload, '\n'), rest...)
			break
		}
		if line[0] == ' ' {
			if inSignature {
				o.text = append(o.text, line[1:]...)
				continue
			}
			o.payload = append(o.payload, line...)
			continue
		}
		name, value, _ := strings.Cut(string(line[:end]), " ")
		counts[name]++
		if inSignature = name == signatureHeader; inSignature {
			o.text = append(o.text, value+"\n"...)
			continue
		}
		o.payload = append(o.payload, line...)
		if strings.HasPrefix(name, signatureHeader) || name == "tree" && value != tree {
			return o, malformed
		}
	}
	if isAmbiguous(raw, counts) {
		return o, malformed
	}
	return o, nil
}

// isAmbiguous reports whether readers of a commit could find another tree or another signature, by how often it has each header.
func isAmbiguous(raw []byte, counts map[string]int) bool {
	return counts["tree"] != 1 || counts[signatureHeader] > 1 || !bytes.HasPrefix(raw, []byte("tree "))
}

// VerifyTag returns the signer of a tag. Raw is the tag object as git hashes it. It must state the name and the commit for which it
// is used, so that the tag of another version stands for none.
func (k *TrustedKeys) VerifyTag(raw []byte, name, commit string, now time.Time) (Signer, error) {
	if len(raw) > MaxObjectBytes {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the tag has more than %d bytes", MaxObjectBytes)
	}
	begin := "object " + commit + "\ntype commit\ntag "
	if !bytes.HasPrefix(raw, []byte(begin)) {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the tag is not one of this commit")
	}
	if !bytes.HasPrefix(raw[len(begin):], []byte(name+"\n")) {
		return "", newRefusal(atoll.ReasonSignatureInvalid, "the tag was signed under another name than %s", name)
	}
	return k.verifyObject(splitTag(raw), now)
}

// splitTag returns what the signature of a tag is of: all before the last line that begins a signature.
func splitTag(raw []byte) signedObject {
	at := len(raw)
	for start := 0; start < len(raw); {
		if beginsSignature(raw[start:]) {
			at = start
		}
		end := bytes.IndexByte(raw[start:], '\n')
		if end < 0 {
			break
		}
		start += end + 1
	}
	return signedObject{noun: "tag", payload: raw[:at], text: raw[at:]}
}
