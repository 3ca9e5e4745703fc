package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pressKeys presses keys where the focus is.
func (p *page) pressKeys(keys string, modifiers ...chromedp.Modifier) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...)))
}

// openPalette opens the palette by its keys, and types into it.
func (p *page) openPalette(query string) {
	p.t.Helper()
	p.pressKeys("k", chromedp.ModifierCtrl)
	p.run(chromedp.WaitVisible(chromedp.CSS("dialog.palette input")))
	p.pressKeys(query)
}

// readFocus returns the class and the role of what has the focus.
func (p *page) readFocus() string {
	p.t.Helper()
	return p.evaluateScript(`document.activeElement.className + " " + (document.activeElement.getAttribute("role") ?? "")`)
}

// TestThePaletteFindsByTyping goes by keys alone: from the button's focus to a cluster and an application, as an administrator, and as
// a team that may list no Clusters.
func TestThePaletteFindsByTyping(t *testing.T) {
	token := prepareTeam(t, "typing", admin)
	tenant := prepareTeam(t, "typed", "")
	for _, ns := range []string{"typing", "typed"} {
		runKubectl(t, fillTemplate(deployment, "$NS", ns, "$NAME", ns+"-app", "$REPLICAS", "1"), "apply", "-f", "-")
	}
	own := bundleOf(t, "typed")
	bundleOf(t, "typing")
	p := openPage(t)
	p.signIn(token)
	p.awaitText("the fleet", "member1", "Ctrl K")
	p.evaluateScript(`document.querySelector(".palette-open").focus() ?? ""`)
	p.openPalette("")
	p.awaitText("pages and actions", "Fleet", "Waiting", "Sign out", "Type to find")
	if got := p.readFocus(); got != " combobox" {
		t.Errorf("the focus is on %q", got)
	}
	p.pressKeys(kb.Escape)
	p.run(chromedp.WaitNotPresent(chromedp.CSS("dialog.palette")))
	if got := p.readFocus(); !strings.Contains(got, "palette-open") {
		t.Errorf("after Escape the focus is on %q", got)
	}

	p.openPalette("member")
	p.awaitText("both clusters in the palette", "Cluster\nmember1", "Cluster\nmember2")
	p.pressKeys(kb.ArrowDown)
	p.run(chromedp.WaitVisible(chromedp.CSS(`dialog.palette [role="option"]:nth-child(2)[aria-selected="true"]`)))
	p.pressKeys(kb.Enter)
	p.awaitText("the page of the second cluster", "Conditions", "member2")
	if got := p.evaluateScript(`location.pathname`); got != "/console/clusters/member2" {
		t.Errorf("Enter opens %s", got)
	}
	p.openPalette("typed-app typed")
	p.awaitText("the application and its logs", "Application\ntyped-app", "Logs\ntyped-app")
	p.pressKeys(kb.Enter)
	p.awaitText("the tree", "Deployment", "Healthy")
	if got := p.evaluateScript(`location.pathname`); got != "/console/applications/typed/"+own {
		t.Errorf("Enter opens %s", got)
	}
	p.checkUnharmed()

	p = openPage(t)
	p.signIn(tenant)
	p.awaitText("the refusal of Clusters", "You may not list Clusters")
	p.openPalette("app")
	p.awaitText("the own application", "Application\ntyped-app")
	if text := p.readText(); strings.Contains(text, "typing-app") {
		t.Errorf("the palette has another tenant's application:\n%s", text)
	}
	p.pressKeys(kb.Escape)
	p.run(chromedp.WaitNotPresent(chromedp.CSS("dialog.palette")))
	p.openPalette("member1")
	p.awaitText("no cluster is found", "Nothing is called so, or you may not list it.")
	p.checkUnharmed()
}
