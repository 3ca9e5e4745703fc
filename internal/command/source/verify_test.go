package source

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/clienttest"
)

// The Secret of trusted keys is made of files, and the Repository states what must be signed.
func TestCreateWithTrustedKeys(t *testing.T) {
	const secretPath = "namespaces/shop/secrets/web-signers"
	dir := t.TempDir()
	keys, armored := writeFile(t, dir, "allowed_signers", "a ssh-ed25519 A\n"), writeFile(t, dir, "release.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----")
	create := func(h *clienttest.FakeHub, more ...string) error {
		_, err := clienttest.RunForOutput(t, h, NewCommand, append([]string{"create", "git", "https://h/a.git", "--name", "web", "--yes"}, more...)...)
		return err
	}
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	if err := create(h, "--trusted-keys-file", keys, "--trusted-keys-file", armored); err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "post "+account, "post "+binding, "post "+secretPath, "post "+repoPath, "post "+sourcePath)
	if got := readField(h, secretPath, "stringData", "allowed_signers"); got != "a ssh-ed25519 A\n" {
		t.Errorf("the keys are %v", got)
	}
	if got := readField(h, secretPath, "metadata", "annotations", "atoll.dev/clusters"); got != "" {
		t.Errorf("the Secret does not stay on the hub: %v", got)
	}
	expectVerify := func(h *clienttest.FakeHub, mode, secret string) {
		t.Helper()
		if got := readField(h, repoPath, "spec", "verify", "mode"); got != mode {
			t.Errorf("the mode is %v, want %s", got, mode)
		}
		if got := readField(h, repoPath, "spec", "verify", "secretRef", "name"); got != secret {
			t.Errorf("the Secret is %v, want %s", got, secret)
		}
	}
	expectVerify(h, "Commit", "web-signers")
	if err := create(h, "--repository", "web", "--trusted-keys-secret", "signers"); err == nil || !strings.Contains(err.Error(), "states what must be signed") {
		t.Errorf("a Repository that is there: %v", err)
	}
	h = clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	if err := create(h, "--tag", "v1", "--verify", "TagAndCommit", "--trusted-keys-secret", "signers"); err != nil {
		t.Fatal(err)
	}
	h.ExpectWrites(t, "post "+account, "post "+binding, "post "+repoPath, "post "+sourcePath)
	expectVerify(h, "TagAndCommit", "signers")
	for want, flags := range map[string][]string{
		`"All" is none of Commit, Tag, TagAndCommit`: {"--verify", "All", "--trusted-keys-file", keys},
		"give --trusted-keys-file or":                {"--verify", "Commit"},
		"give --tag too":                             {"--verify", "Tag", "--trusted-keys-file", keys},
		"has a private key":                          {"--trusted-keys-file", writeFile(t, dir, "id", "-----BEGIN OPENSSH PRIVATE KEY-----")},
		"cannot be a key of a Secret":                {"--trusted-keys-file", writeFile(t, dir, "two words", "a")},
		"two files have the name":                    {"--trusted-keys-file", keys, "--trusted-keys-file", writeFile(t, dir, "other/allowed_signers", "b")},
		"is empty":                                   {"--trusted-keys-file", writeFile(t, dir, "empty", "\n")},
	} {
		h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
		if err := create(h, flags...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", flags, err, want)
		}
		h.ExpectWrites(t)
	}
}

// Each type of Repositories has what can be signed there, and the first of it is stated without --verify.
func TestCreateWithTrustedKeysOfArtifacts(t *testing.T) {
	key := writeFile(t, t.TempDir(), "cosign.pub", "-----BEGIN PUBLIC KEY-----\nA\n-----END PUBLIC KEY-----\n")
	registry, artifact := []string{"helm", "oci://h/charts", "--chart", "a", "--version", "1.x"}, []string{"oci", "oci://h/a", "--tag", "latest"}
	index := []string{"helm", "https://h/charts", "--chart", "a", "--version", "1.x"}
	for _, c := range []struct {
		of   []string
		mode string
		want string
	}{
		{registry, "", "Artifact"}, {registry, "Provenance", "Provenance"}, {index, "", "Provenance"}, {artifact, "", "Artifact"}, {artifact, "Artifact", "Artifact"},
		{index, "Artifact", `error: "Artifact" is none of Provenance`}, {artifact, "Provenance", `error: "Provenance" is none of Artifact`}, {registry, "Commit", `error: "Commit" is none of Artifact, Provenance`},
	} {
		h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
		args := append(append([]string{"create"}, c.of...), "--name", "web", "--yes", "--trusted-keys-file", key)
		if c.mode != "" {
			args = append(args, "--verify", c.mode)
		}
		_, err := clienttest.RunForOutput(t, h, NewCommand, args...)
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", args, err, want)
			}
			h.ExpectWrites(t)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := readField(h, repoPath, "spec", "verify", "mode"); got != c.want {
			t.Errorf("%v: the mode is %v, want %s", args, got, c.want)
		}
		if got := readField(h, "namespaces/shop/secrets/web-signers", "stringData", "cosign.pub"); !strings.Contains(got.(string), "PUBLIC KEY") {
			t.Errorf("%v: the keys are %v", args, got)
		}
	}
}

// The token host is stated for a new Repository of a registry alone.
func TestCreateWithATokenHost(t *testing.T) {
	for kind, of := range map[string][]string{"helm": {"helm", "oci://h/charts", "--chart", "a", "--version", "1.x"}, "oci": {"oci", "oci://h/a", "--tag", "latest"}} {
		h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
		args := append(append([]string{"create"}, of...), "--name", "web", "--yes", "--secret", "login", "--token-host", "auth.h")
		if _, err := clienttest.RunForOutput(t, h, NewCommand, args...); err != nil {
			t.Fatal(err)
		}
		if got := readField(h, repoPath, "spec", kind, "tokenHost"); got != "auth.h" {
			t.Errorf("%s: the token host is %v", kind, got)
		}
		if _, err := clienttest.RunForOutput(t, h, NewCommand, args...); err == nil || !strings.Contains(err.Error(), "leave --token-host out") {
			t.Errorf("%s: a Repository that is there: %v", kind, err)
		}
	}
}
