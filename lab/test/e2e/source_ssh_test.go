package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"atoll.dev/atoll/internal/sources/sshtest"
	"atoll.dev/atoll/internal/testwait"
)

// A repository over SSH is read by a key, from a server that is known. Commits of a trusted key run in members, and others do not.
func TestSourceOverSSHBringsVerifiedCommits(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("there is no ssh-keygen on this machine, by which git signs")
	}
	ns := createNamespace(t, "ssh")
	g := newGitServer(t)
	dir := t.TempDir()
	server := sshtest.Serve(t)
	signer, signing := sshtest.NewKey(t)
	write := func(name, text string) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	signAs := write("signing", signing)
	write("signing.pub", string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	commit := func(message, name string, settings ...string) {
		t.Helper()
		g.editFiles(t, map[string]string{"deploy/" + name + ".yaml": strings.ReplaceAll(oldSettings, "old", name)})
		g.runGit(t, g.work, "add", "-A")
		g.runGit(t, g.work, append(settings, "--quiet", "-m", message)...)
		g.runGit(t, g.work, "push", "--quiet", "origin", "HEAD:main")
	}
	signed := []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + signAs, "commit", "-S"}
	commit("the first one", "first", signed...)

	url := "ssh://git@" + server.Address + filepath.Join(filepath.Dir(g.work), "root", "shop.git")
	create := []string{
		"source", "create", "git", url, "--name", "shop", "-n", ns, "--path", "deploy", "--interval", "30s", "--clusters", "region in (eu,us)",
		"--identity-file", write("id", server.UserKey), "--known-hosts-file", write("known_hosts", server.KnownHosts()),
	}
	expectOutput(t, "the preview", runCLI(t, append(create, "--dry-run")...), "+ secret/shop-ssh", "+ repository/shop: "+url)
	runCLI(t, append(create, "--yes")...)
	shows := func(what string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := mustKubectl(t, "", "get sources,repositories -n "+ns) + runCLI(t, "source", "get", "shop", "-n", ns)
			for _, text := range want {
				if !strings.Contains(out, text) {
					return fmt.Errorf("no %q in:\n%s", text, out)
				}
			}
			return nil
		})
	}
	testwait.UntilNil(t, "the commit runs in the chosen members", existsIn("v1", "ConfigMap", ns, "first", "member1", "member2"))

	mustKubectl(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: signers, namespace: "+ns+", annotations: {atoll.dev/clusters: ''}}\nstringData: {allowed_signers: 'a@example.com "+
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))+"'}\n", "create -f -")
	mustKubectl(t, "", "patch repository shop -n "+ns+` --type=merge -p {"spec":{"verify":{"mode":"Commit","secretRef":{"name":"signers"}}}}`)
	shows("the signer is shown", "signed by ssh-ed25519 "+ssh.FingerprintSHA256(signer.PublicKey()))
	commit("without a signature", "second", "commit")
	runCLI(t, "source", "sync", "shop", "-n", ns)
	shows("the commit is refused", "SignatureMissing", "the first one")
	commit("the third one", "third", signed...)
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "a signed commit runs", existsIn("v1", "ConfigMap", ns, "third", "member1", "member2"))
	shows("the Source is ready", "the third one", "Rendered: True")

	other, _ := sshtest.NewKey(t)
	mustKubectl(t, "", "patch secret shop-ssh -n "+ns+` --type=merge -p {"stringData":{"known_hosts":"`+
		strings.ReplaceAll(knownhosts.Line([]string{server.Address}, other.PublicKey()), " ", `\u0020`)+`"}}`)
	runCLI(t, "source", "sync", "shop", "-n", ns)
	shows("another host key is refused", "ServerNotVerified")
	if err := existsIn("v1", "ConfigMap", ns, "third", "member1", "member2")(t.Context()); err != nil {
		t.Errorf("what runs does not stay: %v", err)
	}
}
