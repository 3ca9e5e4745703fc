package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/atoll"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tree = strings.Repeat("a", 40)
)

// testKey is a key of SSH of a test.
type testKey struct {
	ssh.Signer
	line string
}

func newTestKey(t testing.TB) testKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return testKey{signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}
}

// signMessage signs a message as ssh-keygen -Y sign does; change changes the signature before it is made, and after.
func (k testKey) signMessage(t testing.TB, message []byte, change func(*sshSignature)) string {
	t.Helper()
	s := sshSignature{Version: 1, PublicKey: k.PublicKey().Marshal(), Namespace: namespace, Hash: "sha512"}
	copy(s.Magic[:], sshMagic)
	change(&s)
	digest := sha512.Sum512(message)
	by, err := k.Sign(rand.Reader, ssh.Marshal(sshSigned{s.Magic, s.Namespace, s.Reserved, s.Hash, digest[:]}))
	if err != nil {
		t.Fatal(err)
	}
	s.Signature = ssh.Marshal(by)
	return armorSSH(ssh.Marshal(s))
}

func armorSSH(raw []byte) string {
	var out strings.Builder
	out.WriteString(beginSSH + "\n")
	for text := base64.StdEncoding.EncodeToString(raw); text != ""; {
		n := min(70, len(text))
		out.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return out.String() + endSSH + "\n"
}

const commitText = "tree %s\nauthor Aiko <a@example.com> 1 +0000\ncommitter Aiko <a@example.com> 1 +0000\n\nchange\n"

// withSignature returns a commit with a signature, as git has it.
func withSignature(commit, signature string) []byte {
	head, body, _ := strings.Cut(commit, "\n\n")
	text := strings.ReplaceAll(strings.TrimSuffix(signature, "\n"), "\n", "\n ")
	return []byte(head + "\ngpgsig " + text + "\n\n" + body)
}

// reasonOf returns the reason of a refusal, or the signer.
func reasonOf(t *testing.T, signer Signer, err error) string {
	t.Helper()
	var refused *Refusal
	switch {
	case errors.As(err, &refused):
		if strings.Contains(refused.Message, "hush") {
			t.Errorf("a text of the author is in %q", refused.Message)
		}
		return string(refused.Reason)
	case err != nil:
		t.Fatalf("no refusal: %v", err)
	}
	return string(signer)
}

func mustParse(t testing.TB, text ...string) *TrustedKeys {
	t.Helper()
	files := map[string][]byte{}
	for i, one := range text {
		files[fmt.Sprint(i)] = []byte(one)
	}
	k, err := ParseKeys(files)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSSHSignaturesOfCommits(t *testing.T) {
	key, other := newTestKey(t), newTestKey(t)
	commit := fmt.Sprintf(commitText, tree)
	signer := "ssh-ed25519 " + ssh.FingerprintSHA256(key.PublicKey())
	keep := func(*sshSignature) {}
	good := key.signMessage(t, []byte(commit), keep)
	trailing, err := decodeSSHSignature([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	const invalid, untrusted, missing = "SignatureInvalid", "SignerUntrusted", "SignatureMissing"
	for name, c := range map[string]struct {
		keys string
		raw  []byte
		want string
	}{
		"good":                     {key.line, withSignature(commit, good), signer},
		"with principals":          {`ann@example.com,"b c" namespaces="git" ` + key.line, nil, ""},
		"allowed signers":          {`ann@example.com namespaces="git",valid-after="20250101Z" ` + key.line, withSignature(commit, good), signer},
		"quoted principals":        {`"ann b" ` + key.line + " ann", withSignature(commit, good), signer},
		"several keys":             {"# keys\n\n" + other.line + "\n" + key.line, withSignature(commit, good), signer},
		"a key that ended":         {`ann valid-before="20260102" ` + key.line, withSignature(commit, good), untrusted},
		"a key that begins":        {`ann valid-after="202601020305Z" ` + key.line, withSignature(commit, good), untrusted},
		"a key that ends":          {`ann valid-before="20260102030406" ` + key.line, withSignature(commit, good), signer},
		"another key":              {other.line, withSignature(commit, good), untrusted},
		"not signed":               {key.line, []byte(commit), missing},
		"another message":          {key.line, withSignature(strings.Replace(commit, "change", "hush", 1), good), invalid},
		"another tree":             {key.line, withSignature(strings.Replace(commit, tree, strings.Repeat("b", 40), 1), good), invalid},
		"two trees":                {key.line, withSignature("tree "+tree+"\n"+commit, key.signMessage(t, []byte("tree "+tree+"\n"+commit), keep)), invalid},
		"two signatures":           {key.line, withSignature(string(withSignature(commit, good)), good), invalid},
		"a tree that is not first": {key.line, withSignature("x y\n"+commit, key.signMessage(t, []byte("x y\n"+commit), keep)), invalid},
		"another namespace":        {key.line, withSignature(commit, key.signMessage(t, []byte(commit), func(s *sshSignature) { s.Namespace = "file" })), invalid},
		"another version":          {key.line, withSignature(commit, key.signMessage(t, []byte(commit), func(s *sshSignature) { s.Version = 2 })), invalid},
		"another magic":            {key.line, withSignature(commit, key.signMessage(t, []byte(commit), func(s *sshSignature) { s.Magic[0] = 'X' })), invalid},
		"another hash":             {key.line, withSignature(commit, key.signMessage(t, []byte(commit), func(s *sshSignature) { s.Hash = "sha1" })), invalid},
		"the key of another":       {key.line, withSignature(commit, other.signMessage(t, []byte(commit), func(s *sshSignature) { s.PublicKey = key.PublicKey().Marshal() })), invalid},
		"more after it":            {key.line, withSignature(commit, armorSSH(append(ssh.Marshal(trailing), 0))), invalid},
		"no armor":                 {key.line, withSignature(commit, "hush"), invalid},
		"no end":                   {key.line, withSignature(commit, strings.TrimSuffix(good, endSSH+"\n")), invalid},
		"no base64":                {key.line, withSignature(commit, beginSSH+"\nhush!\n"+endSSH), invalid},
		"a huge one":               {key.line, withSignature(commit, armorSSH(bytes.Repeat([]byte("hush"), 40_000))), invalid},
		"a huge commit":            {key.line, withSignature(commit+strings.Repeat("x", MaxObjectBytes), good), invalid},
		"no body":                  {key.line, []byte("tree " + tree + "\n"), invalid},
		"nothing":                  {key.line, nil, invalid},
		"another algorithm":        {key.line, []byte(strings.Replace(string(withSignature(commit, good)), "gpgsig ", "gpgsig-sha256 ", 1)), invalid},
		"of X.509":                 {key.line, withSignature(commit, "-----BEGIN SIGNED MESSAGE-----\nhush"), invalid},
	} {
		if c.raw == nil && c.want == "" {
			if _, err := ParseKeys(map[string][]byte{"k": []byte(c.keys)}); err == nil {
				t.Errorf("%s: a line with a space in its principals is read", name)
			}
			continue
		}
		got, err := mustParse(t, c.keys).VerifyCommit(c.raw, tree, now)
		if got := reasonOf(t, got, err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

const tagText = "object %s\ntype commit\ntag v1\ntagger Aiko <a@example.com> 1 +0000\n\none\n"

func TestSignaturesOfTags(t *testing.T) {
	key, commit := newTestKey(t), strings.Repeat("c", 40)
	text := fmt.Sprintf(tagText, commit)
	keep := func(*sshSignature) {}
	good := text + key.signMessage(t, []byte(text), keep)
	quoting := text + beginSSH + "\nhush\n" + endSSH + "\n"
	of := func(text string) string { return text + key.signMessage(t, []byte(text), keep) }
	for name, c := range map[string]struct {
		raw, name string
		want      string
	}{
		"good":                 {good, "v1", "ssh-ed25519 " + ssh.FingerprintSHA256(key.PublicKey())},
		"a quoted signature":   {quoting + key.signMessage(t, []byte(quoting), keep), "v1", "ssh-ed25519 " + ssh.FingerprintSHA256(key.PublicKey())},
		"not signed":           {text, "v1", "SignatureMissing"},
		"another name":         {good, "v2", "SignatureInvalid"},
		"the begin of a name":  {good, "v", "SignatureInvalid"},
		"another commit":       {of(fmt.Sprintf(tagText, strings.Repeat("d", 40))), "v1", "SignatureInvalid"},
		"a tag of a tag":       {of(strings.Replace(text, "type commit", "type tag", 1)), "v1", "SignatureInvalid"},
		"another text":         {strings.Replace(good, "\none", "\nhush", 1), "v1", "SignatureInvalid"},
		"a message of OpenPGP": {text + "-----BEGIN PGP MESSAGE-----\nhush", "v1", "SignatureInvalid"},
		"a huge one":           {text + strings.Repeat("x", MaxObjectBytes), "v1", "SignatureInvalid"},
		"text after it":        {good + "hush\n", "v1", "SignatureInvalid"},
	} {
		signer, err := mustParse(t, key.line).VerifyTag([]byte(c.raw), c.name, commit, now)
		if got := reasonOf(t, signer, err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

// newEntity returns a key of OpenPGP that was made at a time.
func newEntity(t *testing.T, made time.Time, lifetime time.Duration) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("Aiko", "", "a@example.com", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return made }, KeyLifetimeSecs: uint32(lifetime / time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func armorEntity(t *testing.T, e *openpgp.Entity, private bool) string {
	t.Helper()
	var out bytes.Buffer
	kind, write := openpgp.PublicKeyType, e.Serialize
	w, err := armor.Encode(&out, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	if private {
		err = e.SerializePrivate(w, nil)
	} else {
		err = write(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	return out.String() + "\n"
}

func signOpenPGP(t *testing.T, e *openpgp.Entity, message string, config packet.Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&out, e, strings.NewReader(message), &config); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func TestOpenPGPSignaturesOfCommits(t *testing.T) {
	commit := fmt.Sprintf(commitText, tree)
	past := now.Add(-48 * time.Hour)
	at := func(at time.Time) packet.Config {
		return packet.Config{Time: func() time.Time { return at }, DefaultHash: crypto.SHA256}
	}
	key, other, expired, revoked := newEntity(t, past, 0), newEntity(t, past, 0), newEntity(t, past, 24*time.Hour), newEntity(t, past, 0)
	config := at(past.Add(time.Hour))
	ofRevoked := signOpenPGP(t, revoked, commit, config)
	beforeRevoked := readEntity(t, revoked)
	if err := revoked.RevokeKey(packet.KeyCompromised, "", &config); err != nil {
		t.Fatal(err)
	}
	good := signOpenPGP(t, key, commit, config)
	copied, extended := readEntity(t, expired), readEntity(t, expired)
	for _, identity := range extended.Identities {
		identity.SelfSignature.KeyLifetimeSecs = nil
		if err := identity.SelfSignature.SignUserId(identity.UserId.Id, expired.PrimaryKey, expired.PrivateKey, &config); err != nil {
			t.Fatal(err)
		}
	}
	early := at(now.Add(maxClockSkew))
	late := at(now.Add(maxClockSkew + 2*time.Second))
	brief := config
	brief.SigLifetimeSecs = 60
	text := config
	for name, c := range map[string]struct {
		keys, signature string
		want            string
	}{
		"good":                  {armorEntity(t, key, false), good, fmt.Sprintf("OpenPGP %X", key.PrimaryKey.Fingerprint)},
		"of two keys":           {armorEntity(t, other, false) + armorEntity(t, key, false), good, fmt.Sprintf("OpenPGP %X", key.PrimaryKey.Fingerprint)},
		"another key":           {armorEntity(t, other, false), good, "SignerUntrusted"},
		"a key that expired":    {armorEntity(t, expired, false), signOpenPGP(t, expired, commit, config), "SignerUntrusted"},
		"a key that is revoked": {armorEntity(t, revoked, false), ofRevoked, "SignerUntrusted"},
		"revoked in one file":   {armorEntity(t, beforeRevoked, false) + armorEntity(t, revoked, false), ofRevoked, "SignerUntrusted"},
		"expired and extended":  {armorEntity(t, copied, false) + armorEntity(t, extended, false), signOpenPGP(t, expired, commit, config), fmt.Sprintf("OpenPGP %X", expired.PrimaryKey.Fingerprint)},
		"a clock ahead":         {armorEntity(t, key, false), signOpenPGP(t, key, commit, early), fmt.Sprintf("OpenPGP %X", key.PrimaryKey.Fingerprint)},
		"a clock far ahead":     {armorEntity(t, key, false), signOpenPGP(t, key, commit, late), "SignatureInvalid"},
		"an expired signature":  {armorEntity(t, key, false), signOpenPGP(t, key, commit, brief), "SignatureInvalid"},
		"another message":       {armorEntity(t, key, false), signOpenPGP(t, key, commit+"x", config), "SignatureInvalid"},
		"no armor":              {armorEntity(t, key, false), beginOpenPGP + "\nhush", "SignatureInvalid"},
		"a key for a signature": {armorEntity(t, key, false), strings.ReplaceAll(armorEntity(t, key, false), "PUBLIC KEY BLOCK", "SIGNATURE"), "SignatureInvalid"},
		"two signatures":        {armorEntity(t, key, false), repeatContent(t, good), "SignatureInvalid"},
		"text and not bytes":    {armorEntity(t, key, false), signText(t, key, commit, text), "SignatureInvalid"},
		"of SSH, without a key": {armorEntity(t, key, false), newTestKey(t).signMessage(t, []byte(commit), func(*sshSignature) {}), "SignerUntrusted"},
	} {
		signer, err := mustParse(t, c.keys).VerifyCommit(withSignature(commit, c.signature), tree, now)
		if got := reasonOf(t, signer, err); got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
		}
	}
}

// readEntity returns another copy of a public key.
func readEntity(t *testing.T, e *openpgp.Entity) *openpgp.Entity {
	t.Helper()
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(armorEntity(t, e, false)))
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys: %v", len(keys), err)
	}
	return keys[0]
}

func signText(t *testing.T, e *openpgp.Entity, message string, config packet.Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := openpgp.ArmoredDetachSignText(&out, e, strings.NewReader(message), &config); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// repeatContent returns an armored text with its content two times.
func repeatContent(t *testing.T, text string) string {
	t.Helper()
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var raw, out bytes.Buffer
	if _, err := raw.ReadFrom(block.Body); err != nil {
		t.Fatal(err)
	}
	w, err := armor.Encode(&out, openpgp.SignatureType, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(append(bytes.Clone(raw.Bytes()), raw.Bytes()...))
	w.Close()
	return out.String() + "\n"
}

func TestTrustedKeysThatAreRefused(t *testing.T) {
	key := newTestKey(t)
	entity := newEntity(t, now, 0)
	block := func(n int) string { return strings.Repeat(key.line+"\n", n) }
	for name, c := range map[string]struct {
		text, want string
	}{
		"nothing":             {"", "there is no trusted key"},
		"comments":            {"# a\n\n", "there is no trusted key"},
		"many keys":           {block(maxKeys + 1), "more than 200"},
		"many bytes":          {block(5_000), "bytes"},
		"no key":              {"hush", "line 1: is no line"},
		"a bad second line":   {key.line + "\nann ssh-ed25519 hush", "line 2: is no line"},
		"an open quote":       {`"ann ` + key.line, "line 1: is no line"},
		"a CA":                {"ann cert-authority " + key.line, "option that is not supported"},
		"another namespace":   {`ann namespaces="file,email" ` + key.line, "namespaces without git"},
		"no namespace of git": {`ann namespaces="*,!git" ` + key.line, "namespaces without git"},
		"an option in front":  {`valid-before="20250101" ` + key.line, "line 1: is no line"},
		"a time of a login":   {`expiry-time="20250101",restrict ` + key.line, "line 1: is no line"},
		"a CA in front":       {"cert-authority " + key.line, "line 1: is no line"},
		"a limit in front":    {"no-pty " + key.line, "line 1: is no line"},
		"a bad time":          {`ann valid-before="tomorrow" ` + key.line, "YYYYMMDD"},
		"a private key":       {"-----BEGIN OPENSSH PRIVATE KEY-----\nhush\n", "private key"},
		"no OpenPGP key":      {beginOpenPGPKey + "\nhush\n", "has no public key"},
		"private OpenPGP key": {armorEntity(t, entity, true), "private key"},
	} {
		_, err := ParseKeys(map[string][]byte{"keys": []byte(c.text)})
		var refused *Refusal
		if !errors.As(err, &refused) || refused.Reason != atoll.ReasonTrustedKeysMissing || !strings.Contains(refused.Message, c.want) || strings.Contains(refused.Message, "hush") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, line := range []string{strings.Replace(key.line, " ", "\t", 1), "no-reply@example.com " + key.line, "a=b@example.com,*@example.org " + key.line} {
		mustParse(t, line)
	}
	for _, list := range []string{"git", "file,git", "g*", "*", "*,!file"} {
		mustParse(t, `ann namespaces="`+list+`" `+key.line)
	}
}

func TestModes(t *testing.T) {
	for mode, want := range map[Mode]string{ModeCommit: "true false", ModeTag: "false true", ModeTagAndCommit: "true true", "": "true true"} {
		if got := fmt.Sprint(mode.NeedsCommit(), " ", mode.NeedsTag()); got != want {
			t.Errorf("%q: %s, want %s", mode, got, want)
		}
	}
}

// Commits and tags that git itself signed by keys of ssh-keygen and gpg are verified.
func TestSignaturesOfGit(t *testing.T) {
	dir := t.TempDir()
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GNUPGHOME="+dir,
			"GIT_AUTHOR_NAME=Aiko", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=Aiko", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run(t, "git", "init", "--quiet", "--initial-branch=main", ".")
	verify := func(t *testing.T, keys string, settings ...string) {
		t.Helper()
		run(t, "git", append(settings, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed\n\nmore")...)
		run(t, "git", append(settings, "tag", "--force", "-s", "v1", "-m", "one")...)
		commit := strings.TrimSpace(run(t, "git", "rev-parse", "HEAD"))
		tree := strings.TrimSpace(run(t, "git", "rev-parse", "HEAD^{tree}"))
		k := mustParse(t, keys)
		raw := run(t, "git", "cat-file", "commit", "HEAD")
		if _, err := k.VerifyCommit([]byte(raw), tree, time.Now()); err != nil {
			t.Errorf("the commit: %v", err)
		}
		if _, err := k.VerifyCommit([]byte(raw+"x"), tree, time.Now()); err == nil {
			t.Error("a changed commit is verified")
		}
		if _, err := k.VerifyTag([]byte(run(t, "git", "cat-file", "tag", "v1")), "v1", commit, time.Now()); err != nil {
			t.Errorf("the tag: %v", err)
		}
	}
	t.Run("ssh", func(t *testing.T) {
		if _, err := exec.LookPath("ssh-keygen"); err != nil {
			t.Skip("there is no ssh-keygen on this machine")
		}
		for _, kind := range []string{"ed25519", "rsa", "ecdsa"} {
			key := filepath.Join(dir, kind)
			run(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", key)
			public, err := os.ReadFile(key + ".pub")
			if err != nil {
				t.Fatal(err)
			}
			verify(t, "a@example.com "+string(public), "-c", "gpg.format=ssh", "-c", "user.signingkey="+key)
		}
	})
	t.Run("gpg", func(t *testing.T) {
		if _, err := exec.LookPath("gpg"); err != nil {
			t.Skip("there is no gpg on this machine")
		}
		run(t, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "Aiko <a@example.com>", "ed25519", "sign", "never")
		t.Cleanup(func() { exec.Command("gpgconf", "--homedir", dir, "--kill", "all").Run() })
		verify(t, run(t, "gpg", "--armor", "--export"))
	})
}

func FuzzSSHSignature(f *testing.F) {
	key := newTestKey(f)
	f.Add([]byte(key.signMessage(f, []byte("a"), func(*sshSignature) {})))
	f.Add([]byte(beginSSH + "\n" + endSSH))
	k := mustParse(f, key.line)
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := decodeSSHSignature(text); err == nil && (s.Version != 1 || string(s.Magic[:]) != sshMagic) {
			t.Errorf("%+v", s)
		}
		signer, err := k.verifyObject(signedObject{noun: "commit", payload: []byte("b"), text: text}, now)
		var refused *Refusal
		if err == nil || signer != "" || !errors.As(err, &refused) {
			t.Errorf("verified by %q: %v", signer, err)
		}
	})
}

func FuzzTrustedKeys(f *testing.F) {
	key := newTestKey(f)
	f.Add([]byte(key.line))
	f.Add([]byte(`"ann b" namespaces="git",valid-before="20260101" ` + key.line))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PGP PUBLIC KEY BLOCK", Bytes: []byte("a")}))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := ParseKeys(map[string][]byte{"k": text})
		var refused *Refusal
		if (err == nil) == (k == nil) || err != nil && !errors.As(err, &refused) {
			t.Errorf("%v, %v", k, err)
		}
		if n := 0; k != nil {
			if n = len(k.ssh) + len(k.openPGP) + len(k.pem); n == 0 || n > maxKeys {
				t.Errorf("%d keys", n)
			}
		}
	})
}

func FuzzCommit(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(commitText, tree)))
	f.Add(withSignature(fmt.Sprintf(commitText, tree), beginSSH+"\na\n"+endSSH))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := splitCommit(raw, tree)
		if err == nil && (len(o.payload)+len(o.text) > len(raw)+1 || !bytes.HasPrefix(o.payload, []byte("tree "+tree+"\n"))) {
			t.Errorf("%q: %q and %q", raw, o.payload, o.text)
		}
	})
}
