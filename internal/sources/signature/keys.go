package signature

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/atoll"
)

// TrustedKeys are keys whose signatures count.
type TrustedKeys struct {
	openPGP openpgp.EntityList
	ssh     []sshKey
	pem     []pemKey
}

// sshKey is a key of SSH, with the time in which it counts. A zero time is no bound.
type sshKey struct {
	key                     ssh.PublicKey
	validAfter, validBefore time.Time
}

// beginOpenPGPKey begins a file with keys of OpenPGP. A file that begins with another block has keys in PEM, and all others have lines
// of SSH.
const beginOpenPGPKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// ParseKeys reads files with trusted keys, by their names: armored public keys of OpenPGP, public keys in PEM, or lines of SSH as
// in allowed_signers and authorized_keys. One that cannot be read refuses all, so that no key counts by mistake.
func ParseKeys(files map[string][]byte) (*TrustedKeys, error) {
	k, size := &TrustedKeys{}, 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := bytes.TrimSpace(files[name])
		if size += len(text); size > MaxKeyBytes {
			return nil, newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys have more than %d bytes", MaxKeyBytes)
		}
		add := k.addSSH
		switch {
		case bytes.HasPrefix(text, []byte(beginOpenPGPKey)):
			add = k.addOpenPGP
		case bytes.HasPrefix(text, []byte(beginPEM)):
			add = k.addPEM
		}
		if err := add(name, text); err != nil {
			return nil, err
		}
	}
	switch n := len(k.openPGP) + len(k.ssh) + len(k.pem); {
	case n == 0:
		return nil, newRefusal(atoll.ReasonTrustedKeysMissing, "there is no trusted key")
	case n > maxKeys:
		return nil, newRefusal(atoll.ReasonTrustedKeysMissing, "there are %d trusted keys, and at most %d are allowed", n, maxKeys)
	}
	return k, nil
}

// CheckMode refuses keys of which none makes the signatures of a mode.
func (k *TrustedKeys) CheckMode(m Mode) error {
	switch {
	case m == ModeArtifact && len(k.pem) == 0:
		return newRefusal(atoll.ReasonTrustedKeysMissing, "none of the trusted keys is a public key in PEM, by which cosign signs artifacts")
	case m == ModeProvenance && len(k.openPGP) == 0:
		return newRefusal(atoll.ReasonTrustedKeysMissing, "none of the trusted keys is one of OpenPGP, by which Helm signs charts")
	case m.IsOfGit() && len(k.openPGP)+len(k.ssh) == 0:
		return newRefusal(atoll.ReasonTrustedKeysMissing, "none of the trusted keys is one of OpenPGP or SSH, by which git signs")
	}
	return nil
}

// addSSH adds the keys of lines.
func (k *TrustedKeys) addSSH(name string, text []byte) error {
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseSignerLine(line)
		if err != nil {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "the trusted keys in %s, line %d: %v", name, i+1, err)
		}
		if len(k.ssh) >= maxKeys {
			return newRefusal(atoll.ReasonTrustedKeysMissing, "there are more than %d trusted keys", maxKeys)
		}
		k.ssh = append(k.ssh, key)
	}
	return nil
}

// errLine is the error of a line that is not one of a key.
var errLine = errors.New("is no line of allowed_signers or authorized_keys")

// parseSignerLine reads a line: a key with its type, or principals, options and a key.
func parseSignerLine(line string) (sshKey, error) {
	rest := line
	if first := strings.Fields(line)[0]; !isKeyType(first) {
		var ok bool
		if rest, ok = cutPrincipals(line); !ok {
			return sshKey{}, errLine
		}
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil {
		return sshKey{}, errLine
	}
	if !isKeyType(key.Type()) {
		return sshKey{}, errors.New("has a key of a type that is not used; keys of DSA and certificates are refused")
	}
	return readSignerOptions(sshKey{key: key}, options)
}

// isKeyType reports whether a word is a type of keys that may sign.
func isKeyType(word string) bool {
	return slices.Contains([]string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
	}, word)
}

// cutPrincipals cuts the principals off a line. They may be quoted.
func cutPrincipals(line string) (rest string, ok bool) {
	if quoted, is := strings.CutPrefix(line, `"`); is {
		_, rest, ok = strings.Cut(quoted, `"`)
		return strings.TrimSpace(rest), ok
	}
	at := strings.IndexAny(line, " \t")
	if at < 0 || isOption(line[:at]) {
		return "", false
	}
	return strings.TrimSpace(line[at:]), true
}

// optionNames are the options of authorized_keys without a value, and those of allowed_signers.
var optionNames = []string{
	"cert-authority", "restrict", "verify-required", "no-agent-forwarding", "no-port-forwarding", "no-pty", "no-touch-required", "no-user-rc", "no-x11-forwarding",
	"namespaces", "valid-after", "valid-before",
}

// isOption reports whether a first word has options, as in authorized_keys. They are not dropped as if they were principals: with
// them a key counts for less.
func isOption(word string) bool {
	return strings.Contains(word, `="`) || slices.ContainsFunc(strings.Split(strings.ToLower(word), ","), func(one string) bool {
		name, _, _ := strings.Cut(one, "=")
		return slices.Contains(optionNames, name)
	})
}

// namespace is that of git in signatures of SSH.
const namespace = "git"

// readSignerOptions honours the options of a line. One that is not known refuses the line.
func readSignerOptions(k sshKey, options []string) (sshKey, error) {
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		var err error
		switch strings.ToLower(name) {
		case "namespaces":
			if !matchesNamespace(value) {
				return k, errors.New("has namespaces without git")
			}
		case "valid-after":
			k.validAfter, err = parseSignerTime(value)
		case "valid-before":
			k.validBefore, err = parseSignerTime(value)
		default:
			return k, errors.New("has an option that is not supported; namespaces, valid-after and valid-before are")
		}
		if err != nil {
			return k, err
		}
	}
	return k, nil
}

// matchesNamespace reports whether a list of patterns has the namespace of git. A pattern after ! takes it out, in any order.
func matchesNamespace(list string) (matches bool) {
	for pattern := range strings.SplitSeq(list, ",") {
		pattern, excludes := strings.CutPrefix(strings.TrimSpace(pattern), "!")
		ok, err := path.Match(pattern, namespace)
		switch {
		case excludes && (ok || err != nil):
			return false
		case ok && err == nil:
			matches = true
		}
	}
	return matches
}

// parseSignerTime reads YYYYMMDD or YYYYMMDDHHMM[SS], in UTC also without the Z at its end.
func parseSignerTime(text string) (time.Time, error) {
	text = strings.TrimSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if at, err := time.Parse(layout, text); err == nil && len(layout) == len(text) {
			return at, nil
		}
	}
	return time.Time{}, errors.New("has a time that is not of the form YYYYMMDD or YYYYMMDDHHMM[SS][Z]")
}
