package console

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/lab"
)

// makeLink has atoll console make a link for the person of a kubeconfig, and returns it with the name of the person.
func makeLink(t *testing.T, kubeconfig string) (link, user string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(lab.BinDirVariable), "atoll"), "console", "--no-browser", "--kubeconfig", kubeconfig)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("atoll console: %v\n%s", err, notes.String())
	}
	if link = strings.TrimSpace(string(out)); !strings.HasPrefix(link, world.hub+"/console/#code=") {
		t.Fatalf("the link is %q", link)
	}
	found := regexp.MustCompile(`signs a browser in as (\S+), once`).FindStringSubmatch(notes.String())
	if found == nil || !regexp.MustCompile(`(?m)^  ([0-9A-F]{2}:){31}[0-9A-F]{2}$`).MatchString(notes.String()) {
		t.Fatalf("the notes have no user, or no fingerprint:\n%s", notes.String())
	}
	return link, found[1]
}

// writeTokenKubeconfig returns a kubeconfig of the hub with a token in the place of the administrator's certificate.
func writeTokenKubeconfig(t *testing.T, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(world.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAOneTimeCodeSignsIn signs in by the client certificate of the administrator and then as another person by a token. A used
// link, and a link that the person does not agree to, change nothing.
func TestAOneTimeCodeSignsIn(t *testing.T) {
	token := prepareTeam(t, "codes", "")
	link, user := makeLink(t, world.lab.KubeconfigPath("hub"))
	p := openPageAt(t, link)
	p.evaluateScript(startScript)
	p.awaitText("the person of the code", "The code signs this browser in as", user, "Continue only if you ran atoll console yourself")
	if got := p.evaluateScript(`location.href + " " + document.cookie`); got != world.hub+"/console/fleet " {
		t.Errorf("the page is at %q", got)
	}
	if got := p.evaluateScript(`fetch("/console/session", {headers: {"X-Atoll-Console": "1"}}).then((r) => String(r.status))`); got != "401" {
		t.Errorf("before the click the session is answered with %s", got)
	}
	p.run(chromedp.Click(chromedp.CSS("#agree")))
	p.awaitText("the fleet, as the administrator", "member1", "member2", user)
	p.openView("applications")
	p.awaitText("the applications", "Applications", user)
	p.checkUnharmed()

	used := openPageAt(t, link)
	used.awaitText("a used link", "this code was used before, or is over", "atoll console", "Do not sign in")
	used.clickButton("", "Do not sign in")
	used.awaitText("the sign-in page", "Sign in to the hub")

	team := writeTokenKubeconfig(t, token)
	other, account := makeLink(t, team)
	if account != "system:serviceaccount:codes:team" {
		t.Errorf("the code is for %q", account)
	}
	p.run(chromedp.Navigate(other))
	p.awaitText("both people", account, "You are signed in as "+user)
	p.clickButton("", "Stay signed in as")
	p.awaitText("the administrator again", "member1", user)

	other, _ = makeLink(t, team)
	p.run(chromedp.Navigate(other))
	p.run(chromedp.WaitVisible(chromedp.CSS("#agree")))
	p.run(chromedp.Click(chromedp.CSS("#agree")))
	p.awaitText("the refusal of Clusters to the team", "You may not list Clusters", account)
	if got := p.evaluateScript(`fetch("/console/api/api/v1/namespaces/kube-system/secrets", {headers: {"X-Atoll-Console": "1"}}).then((r) => String(r.status))`); got != "403" {
		t.Errorf("the team reads Secrets of others: %s", got)
	}
}
