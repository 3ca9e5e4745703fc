package fetch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/memory"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/signature"
)

// signingKey is a key of ssh-keygen, by which git signs.
type signingKey struct{ file, public string }

func newSigningKey(t *testing.T) signingKey {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("there is no ssh-keygen on this machine, by which git signs")
	}
	k := signingKey{file: filepath.Join(t.TempDir(), "key")}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", k.file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	public, err := os.ReadFile(k.file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	k.public = string(public)
	return k
}

// signArguments lets git sign by the key.
func (k signingKey) signArguments(args ...string) []string {
	return append([]string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + k.file}, args...)
}

// signedWork is a repository with signed and unsigned commits and tags. Each has a branch or a tag of its name.
func signedWork(t *testing.T, key, other signingKey) *gitWork {
	t.Helper()
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	git := func(args ...string) string { return r.runGit(t, r.work, args...) }
	commitAs := func(branch string, args ...string) {
		git("checkout", "--quiet", "-b", branch)
		if err := os.WriteFile(filepath.Join(r.work, branch+".yaml"), []byte(configMap), 0o600); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
		git(append(args, "--quiet", "-m", branch)...)
	}
	commitAs("unsigned", "commit")
	commitAs("other", other.signArguments("commit", "-S")...)
	commitAs("good", key.signArguments("commit", "-S")...)
	raw := git("cat-file", "commit", "good") + "\n"
	tampered := filepath.Join(t.TempDir(), "commit")
	text := strings.Replace(raw, git("rev-parse", "good^{tree}"), git("rev-parse", "unsigned^{tree}"), 1)
	if err := os.WriteFile(tampered, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	git("branch", "tampered", git("hash-object", "-t", "commit", "-w", tampered))
	git(key.signArguments("tag", "-s", "signed", "-m", "one", "good")...)
	git(key.signArguments("tag", "-s", "signed-of-unsigned", "-m", "one", "unsigned")...)
	git(other.signArguments("tag", "-s", "by-other", "-m", "one", "good")...)
	git("tag", "-a", "annotated", "-m", "one", "good")
	git("tag", "lightweight", "good")
	git("update-ref", "refs/tags/renamed", git("rev-parse", "signed"))
	git(key.signArguments("tag", "-s", "nested", "-m", "one", "signed")...)
	git("push", "--quiet", "--all", "origin")
	git("push", "--quiet", "--tags", "origin")
	return r
}

func TestSignedCommitsAndTags(t *testing.T) {
	key, other := newSigningKey(t), newSigningKey(t)
	r := signedWork(t, key, other)
	over := map[string]func(*Request){"http": func(q *Request) { q.URL = r.serve(t) }}
	s := r.serveSSH(t)
	over["ssh"] = func(q *Request) { q.URL, q.SSH = s.newRequest().URL, s.newRequest().SSH }
	good := r.runGit(t, r.work, "rev-parse", "good")
	const missing, invalid, untrusted = "SignatureMissing", "SignatureInvalid", "SignerUntrusted"
	for transport, at := range over {
		for mode, wants := range map[signature.Mode]map[string]string{
			signature.ModeCommit: {
				"heads/good": "", "tags/lightweight": "", "tags/annotated": "", "heads/unsigned": missing, "heads/other": untrusted, "heads/tampered": invalid, "tags/signed-of-unsigned": missing,
			},
			signature.ModeTag: {
				"tags/signed": "", "tags/signed-of-unsigned": "", "tags/by-other": untrusted, "tags/annotated": missing, "tags/lightweight": missing, "tags/renamed": invalid, "tags/nested": invalid, "heads/good": missing,
			},
			signature.ModeTagAndCommit: {"tags/signed": "", "tags/signed-of-unsigned": missing, "tags/annotated": missing, "heads/good": missing},
		} {
			q := Request{Type: TypeGit, Verify: &Verification{Mode: mode, Keys: map[string][]byte{"keys": []byte("a@example.com " + key.public)}}}
			at(&q)
			for ref := range wants {
				q.Wants = append(q.Wants, Want{ID: ref, Ref: "refs/" + ref})
			}
			for _, c := range mustFetch(t, q) {
				got := ""
				if c.Failure != nil {
					got = string(c.Failure.Reason)
				}
				if got != wants[c.ID] {
					t.Errorf("%s, %s of %s: %q (%v), want %q", mode, c.ID, transport, got, c.Failure, wants[c.ID])
				}
				if passes := wants[c.ID] == ""; passes != strings.HasPrefix(c.Signer, "ssh-ed25519 SHA256:") || passes != (len(c.Objects) > 0) || c.Commit == "" {
					t.Errorf("%s, %s of %s: %+v", mode, c.ID, transport, c)
				}
			}
		}
	}
	// A digest that was seen passes with a signature alone.
	q := Request{Type: TypeGit, URL: r.serve(t), Verify: &Verification{Mode: signature.ModeCommit, Keys: map[string][]byte{"keys": []byte(key.public)}}}
	q.Wants = []Want{{ID: "s", Ref: "refs/heads/good"}}
	seen := mustFetch(t, q)[0]
	q.Wants = []Want{{ID: "s", Ref: "refs/heads/good", SeenDigest: seen.Digest}}
	if c := mustFetch(t, q)[0]; !c.Unchanged || c.Signer != seen.Signer || c.Commit != good {
		t.Errorf("the same content: %+v", c)
	}
	q.Verify.Keys["keys"] = []byte(other.public)
	if c := mustFetch(t, q)[0]; c.Unchanged || c.Failure == nil || c.Failure.Reason != atoll.ReasonSignerUntrusted {
		t.Errorf("the same content by other keys: %+v", c)
	}
	for name, keys := range map[string]map[string][]byte{"no keys": nil, "bad keys": {"k": []byte("hush")}} {
		q.Verify.Keys = keys
		if _, err := runFetch(t, q); err == nil || reasonOf(t, err) != atoll.ReasonTrustedKeysMissing || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	q.Type = TypeOCI
	if _, err := runFetch(t, q); err == nil || reasonOf(t, err) != atoll.ReasonInvalidField {
		t.Errorf("signatures of artifacts: %v", err)
	}
}

// An object that is not what its hash states is not verified.
func TestObjectsHaveTheirHash(t *testing.T) {
	store := memory.NewStorage()
	o := store.NewEncodedObject()
	o.SetType(plumbing.CommitObject)
	w, err := o.Writer()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("tree a\n\n")); err != nil {
		t.Fatal(err)
	}
	hash, err := store.SetEncodedObject(o)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := readObject(store, plumbing.CommitObject, hash); err != nil || string(raw) != "tree a\n\n" {
		t.Errorf("%q, %v", raw, err)
	}
	wrong := plumbing.NewHash(strings.Repeat("a", 40))
	store.Objects[wrong], store.Commits[wrong] = o, o
	if _, err := readObject(store, plumbing.CommitObject, wrong); reasonOf(t, err) != atoll.ReasonSignatureInvalid {
		t.Errorf("another hash: %v", err)
	}
	if _, err := readObject(store, plumbing.TagObject, plumbing.NewHash(strings.Repeat("b", 40))); reasonOf(t, err) != atoll.ReasonSignatureMissing {
		t.Errorf("no tag: %v", err)
	}
}
