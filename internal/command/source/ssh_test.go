package source

import (
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/clienttest"
)

// The Secret of a repository over SSH is made of files, and its values are not printed.
func TestCreateOverSSH(t *testing.T) {
	const secretPath = "namespaces/shop/secrets/web-ssh"
	dir := t.TempDir()
	key, password := writeFile(t, dir, "id", "hush key"), writeFile(t, dir, "pw", "hush password\n")
	hosts, empty := writeFile(t, dir, "hosts", "h ssh-ed25519 A\n"), writeFile(t, dir, "empty", " \n")
	files := []string{"--identity-file", key, "--identity-password-file", password, "--known-hosts-file", hosts}
	create := func(h *clienttest.FakeHub, url string, more ...string) (string, error) {
		return clienttest.RunForOutput(t, h, NewCommand, append([]string{"create", "git", url, "--name", "web"}, more...)...)
	}
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	for _, format := range []string{"", "--output=yaml", "--output=json"} {
		more := append([]string{"--dry-run"}, files...)
		if format != "" {
			more = append(more, format)
		}
		out, err := create(h, "git@h:team/a.git", more...)
		if err != nil || strings.Contains(out, "hush") || !strings.Contains(out, "ssh://git@h/team/a.git") || !strings.Contains(out, "web-ssh") {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
		if shown := strings.Contains(out, "h ssh-ed25519 A"); shown != (format != "") {
			t.Errorf("%s: the host keys are shown: %v", format, shown)
		}
	}
	h.ExpectWrites(t)
	if out, err := create(h, "ssh://git@h/a", append([]string{"--yes"}, files...)...); err != nil || strings.Contains(out, "hush") {
		t.Fatalf("%v\n%s", err, out)
	}
	h.ExpectWrites(t, "post "+account, "post "+binding, "post "+secretPath, "post "+repoPath, "post "+sourcePath)
	for field, want := range map[string]string{"identity": "hush key", "password": "hush password", "known_hosts": "h ssh-ed25519 A\n"} {
		if got := readField(h, secretPath, "stringData", field); got != want {
			t.Errorf("%s: %v", field, got)
		}
	}
	if got := readField(h, secretPath, "metadata", "annotations", "atoll.dev/clusters"); got != "" {
		t.Errorf("the Secret does not stay on the hub: %v", got)
	}
	if got := readField(h, repoPath, "spec", "git", "secretRef", "name"); got != "web-ssh" {
		t.Error(got)
	}
	// The Repository is there, so no Secret is made.
	if _, err := create(h, "ssh://git@h/a", append([]string{"--repository", "web", "--dry-run"}, files...)...); err == nil || !strings.Contains(err.Error(), "has a Secret already") {
		t.Errorf("a Repository that is there: %v", err)
	}
	for want, c := range map[string][]string{
		"needs --identity-file and --known-hosts-file": {"ssh://git@h/a"},
		"known-hosts-file":         {"ssh://git@h/a", "--identity-file", key},
		"is for an ssh:// URL":     append([]string{"https://h/a"}, files...),
		"give --identity-file too": {"ssh://git@h/a", "--secret", "s", "--identity-password-file", password},
		"is empty":                 {"ssh://git@h/a", "--identity-file", key, "--known-hosts-file", empty},
		"no such file":             {"ssh://git@h/a", "--identity-file", filepath.Join(dir, "absent"), "--known-hosts-file", hosts},
	} {
		h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
		if _, err := create(h, c[0], c[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
}
