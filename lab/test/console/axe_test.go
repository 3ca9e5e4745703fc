package console

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// axeScript checks the page by the rules of WCAG 2.0 to 2.2 at the levels A and AA. It returns each violation with its rule,
// and each element with its selector.
const axeScript = `axe.run(document, {
		runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}, preload: false, resultTypes: ["violations"],
	}).then((result) => result.violations.map((v) => v.id + ": " + v.help + v.nodes.map((n) => "\n    " + n.target.join(" ") + "\n        " + n.failureSummary.replace(/\s+/g, " ")).join("")).join("\n  "))`

// readAxe installs axe-core as its lock file has it, and returns its script.
func readAxe(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no npm: apt-get install nodejs npm")
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join("axe", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// checkAccessible fails for each violation on the page, in both themes. The protocol of the browser's tools evaluates scripts
// outside of the page's policy, which stays as it is.
func (p *page) checkAccessible(what, axe string) {
	p.t.Helper()
	p.evaluateScript(axe + `; ""`)
	for _, theme := range []string{"light", "dark"} {
		p.evaluateScript(`document.documentElement.dataset.theme = "` + theme + `"`)
		if found := p.evaluateScript(axeScript); found != "" {
			p.t.Errorf("%s, %s:\n  %s", what, theme, found)
		}
	}
	p.evaluateScript(`delete document.documentElement.dataset.theme; ""`)
}

// TestThePagesAreAccessible checks each page of the console.
func TestThePagesAreAccessible(t *testing.T) {
	token := prepareTeam(t, "axe", admin)
	axe := readAxe(t)
	runKubectl(t, fillTemplate(deployment, "$NS", "axe", "$NAME", "web", "$REPLICAS", "2"), "apply", "-f", "-")
	bundle := bundleOf(t, "axe")
	runKubectl(t, fillTemplate(gatedApp, "$NS", "axe"), "apply", "-f", "-")
	awaitColours(t, "axe", "web", "blue gone")

	link, user := makeLink(t, world.lab.KubeconfigPath("hub"))
	p := openPageAt(t, link)
	p.awaitText("the person of a code", user)
	p.checkAccessible("the sign-in by a code", axe)
	p.run(chromedp.Navigate(link))
	p.awaitText("a used code", "this code was used before")
	p.checkAccessible("a refused code", axe)
	p.clickButton("", "Do not sign in")
	p.awaitText("the sign-in page", "Sign in to the hub")
	p.checkAccessible("the sign-in page", axe)
	p.signIn(token)

	p.checkLists(axe)
	p.checkSources(axe)
	p.checkPod(axe, p.checkApplication(axe, bundle))
	p.checkUnharmed()
}

// checkLists checks the pages that list, a cluster, the palette and the freeze.
func (p *page) checkLists(axe string) {
	p.t.Helper()
	p.awaitText("the fleet", "member1", "member2", "AgentConnected")
	p.checkAccessible("the fleet", axe)
	p.openAddress("/console/fleet?view=map&by=label:env")
	p.awaitCells("the clusters in the map", 2)
	p.checkAccessible("the map of the fleet", axe)
	p.openAddress("/console/fleet?q=none")
	p.awaitText("no cluster for the filter", "Nothing matches the filter")
	p.checkAccessible("an empty fleet", axe)
	p.openView("clusters", "member1")
	p.clickButton("drain", "Drain the cluster…")
	p.clickButton("drain", "Plan")
	p.run(chromedp.WaitVisible(chromedp.CSS("#drain .plan")))
	p.checkAccessible("a cluster with the plan of a drain", axe)
	p.openView("applications")
	p.awaitText("the applications", "axe", "4/4")
	p.checkAccessible("the applications", axe)
	p.openView("waiting")
	p.clickButton("", "Approve canary")
	p.awaitText("what is approved", "for the stage canary")
	p.checkAccessible("what waits, with an approval", axe)
	p.openPalette("member")
	p.awaitText("the clusters in the palette", "Cluster\nmember1")
	p.checkAccessible("the palette", axe)
	p.run(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotPresent(chromedp.CSS("dialog.palette")))
	runKubectl(p.t, frozenHub, "apply", "-f", "-")
	defer runKubectl(p.t, "", "patch", "hubsettings", "hub", "--type=merge", "-p", `{"spec":{"freeze":null}}`)
	p.awaitText("the freeze", "All changes are frozen:")
	p.clickButton("freeze", "Lift the freeze…")
	p.awaitText("what lifting does", "Changes that wait start at once")
	p.checkAccessible("a freeze", axe)
}

// checkSources checks the list of Sources, and the page of one with an action.
func (p *page) checkSources(axe string) {
	p.t.Helper()
	runKubectl(p.t, fillTemplate(unreachableSource, "$NS", "axe"), "apply", "-f", "-")
	p.openView("sources")
	p.awaitText("the Sources", "storefront", "Not applied")
	p.checkAccessible("the Sources", axe)
	p.openView("sources", "axe", "storefront")
	p.clickButton("actions", "Suspend…")
	p.awaitText("a Source", "What runs stays.", "RepositoryUnreachable")
	p.checkAccessible("a Source", axe)
}

// checkApplication checks the page of an application with all that can be opened there. It returns the path of one of its pods.
func (p *page) checkApplication(axe, bundle string) string {
	p.t.Helper()
	p.openView("applications", "axe", bundle)
	p.awaitText("the tree", "Deployment", "member1", "Healthy")
	p.run(chromedp.Click(chromedp.CSS(".node-cluster .twist")))
	p.awaitText("the pods", "ReplicaSet", "Running")
	p.run(chromedp.Click(`//section[@id="placement"]//button[text()="Explain"]`))
	p.awaitText("why it runs where it does", "Chosen")
	p.run(chromedp.Click(`//section[@id="manifests"]//button[text()="Render"]`))
	p.awaitText("what the clusters get", "kind: Deployment")
	p.clickButton("change", "Edit")
	p.run(chromedp.WaitVisible(chromedp.CSS("#change .yaml")))
	p.checkAccessible("an application with its editor", axe)
	pod := p.evaluateScript(`document.querySelector('.node-object a[href*="/console/pods/"]').getAttribute("href")`)
	p.openView("applications", "axe", "none")
	p.awaitText("an application that is gone", "This does not exist")
	p.checkAccessible("a refusal", axe)
	return pod
}

// checkPod checks the page of a pod, its logs, and its terminal before it is opened.
func (p *page) checkPod(axe, address string) {
	p.t.Helper()
	p.openAddress(address)
	p.awaitText("a pod", "Containers", "registry.example/web:1", "Successfully assigned")
	p.run(chromedp.Click(chromedp.CSS(".manifest summary")))
	p.awaitText("the object of the pod", "kind: Pod")
	p.checkAccessible("a pod", axe)
	pod := path.Base(address)
	p.openView("terminal", "axe", pod)
	p.awaitText("the choices of a terminal", "kubectl exec -it")
	p.checkAccessible("a terminal", axe)
	p.openView("logs", "axe", "Pod", pod)
	p.awaitText("the logs", "kubectl logs")
	p.checkAccessible("logs", axe)
}
