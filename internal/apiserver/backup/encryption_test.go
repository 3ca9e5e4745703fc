package backup

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/crypto/ssh"

	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/keys"
)

// savedSecret is the value of a key in the etcd of newSecretDataDir, several chunks of age long.
var savedSecret = strings.Repeat("this is a plain Secret. ", 10_000)

// newSecretDataDir makes a hub's data directory with savedSecret, and returns texts that no encrypted
// backup has.
func newSecretDataDir(t *testing.T) (dir string, secrets []string) {
	t.Helper()
	dir, _ = newDataDir(t)
	put(t, dir, savedSecret)
	for _, name := range keys.KeyFiles() {
		content, err := os.ReadFile(filepath.Join(dir, "keys", name))
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, string(content), name)
	}
	return dir, append(secrets, savedSecret[:24], "ustar", "PRIVATE KEY")
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// newSSHKey returns a private key in OpenSSH's format and the line of its public key.
func newSSHKey(t *testing.T, passphrase string) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), string(ssh.MarshalAuthorizedKey(line))
}

// saveEncrypted saves dir for the recipients and returns the file.
func saveEncrypted(t *testing.T, dir string, recipients ...age.Recipient) string {
	t.Helper()
	o := testOptions(dir, filepath.Join(t.TempDir(), "hub.age"))
	o.Recipients = recipients
	report, err := SaveBackup(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Encrypted {
		t.Errorf("the report does not say that the file is encrypted: %+v", report)
	}
	return o.File
}

// assertSaved fails unless dir has the state of newSecretDataDir.
func assertSaved(t *testing.T, dir string) {
	t.Helper()
	withEtcd(t, dir, func(c *clientv3.Client) {
		got, err := c.Get(t.Context(), "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != savedSecret {
			t.Errorf("the restored etcd has %d keys: %v", len(got.Kvs), err)
		}
	})
}

// readTree returns the content of each file below dir.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEachRecipientRestores(t *testing.T) {
	dir, secrets := newSecretDataDir(t)
	first, second := newIdentity(t), newIdentity(t)
	private, public := newSSHKey(t, "")
	lines := filepath.Join(t.TempDir(), "recipients")
	if err := os.WriteFile(lines, []byte("# the safe\n\n"+second.Recipient().String()+"\n"+public), 0o600); err != nil {
		t.Fatal(err)
	}
	recipients, err := ParseRecipients([]string{first.Recipient().String()}, &lines, nil)
	if err != nil || len(recipients) != 3 {
		t.Fatalf("%d recipients: %v", len(recipients), err)
	}
	file := saveEncrypted(t, dir, recipients...)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is not private: %v %v", info.Mode(), err)
	}
	left := readTree(t, filepath.Dir(file))
	if len(left) != 1 {
		t.Errorf("besides the backup there is more: %v", len(left))
	}
	for path, content := range left {
		for _, secret := range secrets {
			if strings.Contains(content, secret) {
				t.Errorf("%s holds %.40q in the clear", path, secret)
			}
		}
	}
	// As on the command line, from a file and from standard input.
	for name, content := range map[string]string{
		"first":  "# created: today\n" + first.String() + "\n",
		"second": newIdentity(t).String() + "\n" + second.String() + "\n",
		"ssh":    private,
	} {
		t.Run(name, func(t *testing.T) {
			identities, err := ParseIdentities("-", strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			o := testOptions(filepath.Join(t.TempDir(), "restored"), file)
			o.Identities = identities
			report, err := RestoreDataDir(t.Context(), o)
			if err != nil || !report.Encrypted {
				t.Fatalf("restore: %+v %v", report, err)
			}
			assertSaved(t, o.DataDir)
		})
	}
}

func TestPostQuantumRecipientRestores(t *testing.T) {
	dir := t.TempDir()
	if _, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), true); err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	recipients, err := ParseRecipients([]string{identity.Recipient().String()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(filepath.Join(t.TempDir(), "restored"), saveEncrypted(t, dir, recipients...))
	if o.Identities, err = ParseIdentities("-", strings.NewReader(identity.String())); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreDataDir(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// diskReader looks at every file in its directories each time that a part of the backup is written.
type diskReader struct {
	t       *testing.T
	dirs    []string
	secrets []string
	writes  int
}

func (d *diskReader) Write(p []byte) (int, error) {
	d.writes++
	for _, dir := range d.dirs {
		for path, content := range readTree(d.t, dir) {
			for _, secret := range d.secrets {
				if strings.Contains(content, secret) {
					d.t.Errorf("after %d writes, %s holds %.40q", d.writes, path, secret)
				}
			}
		}
	}
	return len(p), nil
}

func TestNoPlainCopyWhileABackupIsWritten(t *testing.T) {
	dir, secrets := newSecretDataDir(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	o := testOptions(dir, filepath.Join(t.TempDir(), "hub.age"))
	o.KeysDir, o.Recipients = filepath.Join(dir, "keys"), []age.Recipient{newIdentity(t).Recipient()}
	disk := &diskReader{t: t, dirs: []string{temp, filepath.Dir(o.File)}, secrets: secrets}
	if _, err := writeBackup(t.Context(), o, disk); err != nil {
		t.Fatal(err)
	}
	// A header, and a chunk for each 64 KiB.
	if chunks := len(savedSecret) / (64 << 10); disk.writes < chunks {
		t.Errorf("the backup came in %d writes, and its content has %d chunks", disk.writes, chunks)
	}
}

func TestRefusalsOfEncryptedBackups(t *testing.T) {
	dir, _ := newSecretDataDir(t)
	identity := newIdentity(t)
	encrypted := saveEncrypted(t, dir, identity.Recipient())
	plain := filepath.Join(t.TempDir(), "hub.tar")
	if _, err := SaveBackup(t.Context(), testOptions(dir, plain)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file       string
		identities []age.Identity
		want       Reason
	}{
		"no identity":             {encrypted, nil, IdentityMissing},
		"wrong identity":          {encrypted, []age.Identity{newIdentity(t), newIdentity(t)}, WrongIdentity},
		"plain with an identity":  {plain, []age.Identity{identity}, NotEncrypted},
		"one of several is right": {encrypted, []age.Identity{newIdentity(t), identity}, ""},
		"plain without":           {plain, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(filepath.Join(t.TempDir(), "target"), c.file)
			o.Identities = c.identities
			_, err := RestoreDataDir(t.Context(), o)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				assertSaved(t, o.DataDir)
				return
			}
			assertRefused(t, o, err, c.want)
			if !strings.Contains(err.Error(), "identity") {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
}

// assertRefused fails unless err has one of the reasons and nothing was restored.
func assertRefused(t *testing.T, o Options, err error, reasons ...Reason) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) || !slices.Contains(reasons, refused.Reason) || refused.File != o.File {
		t.Errorf("want a refusal of %s with %v, got %v", o.File, reasons, err)
	}
	if _, err := os.Stat(o.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was restored: %v", err)
	}
}

func TestChangedEncryptedBackupIsRefused(t *testing.T) {
	dir, _ := newSecretDataDir(t)
	identity := newIdentity(t)
	whole, err := os.ReadFile(saveEncrypted(t, dir, identity.Recipient()))
	if err != nil {
		t.Fatal(err)
	}
	const nonceBytes, chunkBytes = 16, 64<<10 + 16
	payload := bytes.Index(whole, []byte("\n--- ")) + len("\n--- ") + 43 + len("\n") + nonceBytes
	chunks := (len(whole) - payload) / chunkBytes
	if chunks < 3 {
		t.Fatalf("the backup has only %d whole chunks", chunks)
	}
	target := filepath.Join(t.TempDir(), "target")
	refuse := func(t *testing.T, content []byte, reasons ...Reason) {
		t.Helper()
		o := testOptions(target, filepath.Join(t.TempDir(), "in.age"))
		o.Identities = []age.Identity{identity}
		if err := os.WriteFile(o.File, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := RestoreDataDir(t.Context(), o)
		assertRefused(t, o, err, reasons...)
	}
	// Offsets in the payload: around the ends of each chunk, in its middle, in its tag.
	offsets := []int{payload, payload + 1, len(whole) - 17, len(whole) - 16, len(whole) - 1}
	for i := range chunks {
		begin := payload + i*chunkBytes
		offsets = append(offsets, begin+chunkBytes/2, begin+chunkBytes-1, begin+chunkBytes-8, begin+chunkBytes, begin+chunkBytes+1)
	}
	for _, at := range offsets {
		if at >= len(whole) {
			continue
		}
		t.Run(fmt.Sprintf("payload at %d of %d", at, len(whole)), func(t *testing.T) {
			refuse(t, whole[:at], Damaged)
			refuse(t, flipBit(whole, at), Damaged)
		})
	}
	// A changed header hides that the file is encrypted, or for which recipients.
	for at := range payload {
		refuse(t, whole[:at], Damaged, NotEncrypted)
		refuse(t, flipBit(whole, at), Damaged, NotEncrypted, WrongIdentity)
	}
	t.Run("last chunk left out", func(t *testing.T) { refuse(t, whole[:payload+chunks*chunkBytes], Damaged) })
	t.Run("first chunk left out", func(t *testing.T) {
		refuse(t, slices.Concat(whole[:payload], whole[payload+chunkBytes:]), Damaged)
	})
	t.Run("two chunks swapped", func(t *testing.T) {
		a, b := whole[payload:payload+chunkBytes], whole[payload+chunkBytes:payload+2*chunkBytes]
		refuse(t, slices.Concat(whole[:payload], b, a, whole[payload+2*chunkBytes:]), Damaged)
	})
	t.Run("more after the end", func(t *testing.T) { refuse(t, append(bytes.Clone(whole), 'x'), Damaged) })
}

func flipBit(content []byte, at int) []byte {
	changed := bytes.Clone(content)
	changed[at] ^= 1
	return changed
}

// swappingIdentity replaces the backup's file after it was opened for the verification.
type swappingIdentity struct {
	age.Identity
	swap func()
}

func (s swappingIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	s.swap()
	return s.Identity.Unwrap(stanzas)
}

func TestVerifiedFileIsTheRestoredOne(t *testing.T) {
	dir, _ := newSecretDataDir(t)
	identity := newIdentity(t)
	file := saveEncrypted(t, dir, identity.Recipient())
	put(t, dir, "later")
	other := saveEncrypted(t, dir, identity.Recipient())
	o := testOptions(filepath.Join(t.TempDir(), "target"), file)
	o.Identities = []age.Identity{swappingIdentity{identity, func() {
		if err := os.Rename(other, file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}}}
	if _, err := RestoreDataDir(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	assertSaved(t, o.DataDir)

	// A file that changes in place is not extracted.
	d, err := datadir.OpenEmpty(filepath.Join(t.TempDir(), "target"), "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o.Identities = []age.Identity{identity}
	report, err := verifyBackup(o, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := extractEntries(o, f, d, flipHex(report.Checksum)); err == nil || !strings.Contains(err.Error(), "changed during the restore") {
		t.Errorf("another file than the verified one was extracted: %v", err)
	}
}

func flipHex(sum string) string {
	if sum[0] == '0' {
		return "1" + sum[1:]
	}
	return "0" + sum[1:]
}

func TestFailedSaveLeavesNothing(t *testing.T) {
	dir, _ := newSecretDataDir(t)
	if err := os.Remove(filepath.Join(dir, "keys", "hub.key")); err != nil {
		t.Fatal(err)
	}
	o := testOptions(dir, filepath.Join(t.TempDir(), "hub.age"))
	o.Recipients = []age.Recipient{newIdentity(t).Recipient()}
	if _, err := SaveBackup(t.Context(), o); err == nil {
		t.Fatal("a hub without its key was saved")
	}
	if left := readTree(t, filepath.Dir(o.File)); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestRecipientsThatAreNoneAreRefused(t *testing.T) {
	identity := newIdentity(t)
	private, public := newSSHKey(t, "")
	many := strings.Repeat(public, MaxRecipients+1)
	file := func(content string) *string {
		name := filepath.Join(t.TempDir(), "recipients")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return &name
	}
	missing, empty := filepath.Join(t.TempDir(), "none"), ""
	for name, c := range map[string]struct {
		values []string
		file   *string
		want   string
	}{
		"empty value":           {[]string{identity.Recipient().String(), ""}, nil, "--recipient, number 2"},
		"private key as value":  {[]string{identity.String()}, nil, "begins neither"},
		"typing error":          {[]string{identity.Recipient().String() + "q"}, nil, "--recipient, number 1"},
		"file without a key":    {nil, file("# none\n\n"), "has no recipient"},
		"private key in a file": {nil, file("\n" + private), "line 2"},
		"missing file":          {nil, &missing, "no such file"},
		"empty name":            {nil, &empty, "names no file"},
		"too many":              {nil, file(many), "at most 100"},
		"too long":              {nil, file(strings.Repeat("#\n", maxKeyFileBytes)), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRecipients(c.values, c.file, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want %q, got %d recipients, %v", c.want, len(got), err)
			}
			if strings.Contains(err.Error(), identity.String()) {
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
	if got, err := ParseRecipients(nil, nil, nil); err != nil || len(got) > 0 {
		t.Errorf("without recipients: %v %v", got, err)
	}
}

func TestMostRecipientsStillRestore(t *testing.T) {
	dir := t.TempDir()
	if _, err := keys.LoadOrCreate(filepath.Join(dir, "keys"), true); err != nil {
		t.Fatal(err)
	}
	// The recipients with the largest stanzas.
	var recipients []age.Recipient
	var last *age.HybridIdentity
	for range MaxRecipients {
		identity, err := age.GenerateHybridIdentity()
		if err != nil {
			t.Fatal(err)
		}
		recipients, last = append(recipients, identity.Recipient()), identity
	}
	o := testOptions(filepath.Join(t.TempDir(), "target"), saveEncrypted(t, dir, recipients...))
	o.Identities = []age.Identity{last}
	if _, err := RestoreDataDir(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestIdentitiesThatAreNoneAreRefused(t *testing.T) {
	locked, _ := newSSHKey(t, "passphrase")
	for name, c := range map[string]struct{ content, want string }{
		"empty":                     {"", "no identities"},
		"recipient":                 {newIdentity(t).Recipient().String(), "unknown identity type"},
		"encrypted":                 {"age-encryption.org/v1\n-> scrypt", "age --decrypt"},
		"encrypted with armor":      {"-----BEGIN AGE ENCRYPTED FILE-----\n", "age --decrypt"},
		"SSH key with a passphrase": {locked, "ssh-keygen -p"},
		"another PEM":               {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "SSH key"},
		"endless":                   {strings.Repeat("#", maxKeyFileBytes+1), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseIdentities("-", strings.NewReader(c.content))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %d identities, %v", c.want, len(got), err)
			}
		})
	}
}
