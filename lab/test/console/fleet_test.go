package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"atoll.dev/atoll/internal/testwait"
)

// fleetSize is more clusters than have a tile each.
const fleetSize = 2100

// createLargeFleet creates Clusters that wait to join, in three regions.
func createLargeFleet(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for i := range fleetSize {
		fmt.Fprintf(&b, "---\napiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: edge-%d, labels: {edge: \"true\"}}\nspec: {region: r%d}\n", i, i%3)
	}
	runKubectl(t, b.String(), "create", "-f", "-")
}

// removeLargeFleet deletes what createLargeFleet has created.
func removeLargeFleet(t *testing.T) {
	t.Helper()
	runKubectl(t, "", "delete", "--raw", "/apis/atoll.dev/v1alpha1/clusters?labelSelector=edge%3Dtrue")
	testwait.UntilNil(t, "the clusters of the test are gone", func(context.Context) error {
		if left := runKubectl(t, "", "get", "clusters", "-l", "edge=true", "-o", "name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

// awaitCells waits until the map has a number of cells.
func (p *page) awaitCells(what string, n int) {
	p.t.Helper()
	testwait.UntilNil(p.t, what, func(context.Context) error {
		if got := p.evaluateScript(`String(document.querySelectorAll("[data-cell]").length)`); got != fmt.Sprint(n) {
			return fmt.Errorf("%s cells, want %d", got, n)
		}
		return nil
	})
}

// recordRequests has the page keep the addresses that it requests from now on.
const recordRequests = `window.requested = []; { const send = window.fetch; window.fetch = (...a) => (requested.push(String(a[0])), send(...a)); } ""`

// TestALargeFleetHasPagesAndAMap walks through more clusters than a page and a map have room for, by keys and clicks, and reads no
// list of Clusters.
func TestALargeFleetHasPagesAndAMap(t *testing.T) {
	token := prepareTeam(t, "largefleet", admin)
	defer removeLargeFleet(t)
	createLargeFleet(t)
	p := openPage(t)
	p.signIn(token)
	p.evaluateScript(recordRequests)
	p.awaitText("the first page", "edge-0", "Waits to join", "1–500 of 2102")
	p.clickButton("", "Next page")
	p.awaitText("the second page", "501–1000 of 2102", "edge-500")
	p.clickButton("", "Previous page")
	p.awaitText("the first page again", "1–500 of 2102", "edge-0")
	p.openAddress("/console/fleet?q=edge-20&sort=-name")
	p.awaitText("a filter", "edge-2099", "111 of 2102")
	p.openAddress("/console/fleet?q=member&by=label:edge")
	p.awaitText("both members, and no value of the label", "member1", "member2", "(no value)", "2 of 2102", "Ready")

	p.openAddress("/console/fleet?view=map")
	p.awaitCells("a block for each region", 4)
	p.awaitText("the blocks", "Above 2000 clusters", "r0", "700", "(no value)")
	p.evaluateScript(`document.querySelector('[data-cell="r0"]').focus() ?? ""`)
	p.pressKeys(kb.ArrowRight)
	if got := p.evaluateScript(`document.activeElement.dataset.cell`); got != "r1" {
		t.Errorf("the focus is on %q", got)
	}
	p.pressKeys(kb.Enter)
	p.awaitCells("a tile for each cluster of the region", 700)
	p.awaitText("the group", "Region: r1", "Waits to join", "700")
	runKubectl(t, "", "delete", "cluster", "edge-1", "--wait=false")
	p.awaitCells("a tile that went", 699)
	p.evaluateScript(`document.querySelector("a.tile[tabindex='-1']").focus() ?? ""`)
	p.pressKeys(kb.Home)
	p.pressKeys(kb.Enter)
	p.awaitText("the page of a cluster", "Conditions", "edge-4")

	p.openAddress("/console/fleet?view=map&by=status&q=member")
	p.awaitCells("the members by readiness", 2)
	p.awaitText("named tiles", "member1", "member2", "Ready")
	if requests := p.evaluateScript(`requested.join("\n")`); strings.Contains(requests, "v1alpha1/clusters?limit=") || !strings.Contains(requests, "v1alpha1/fleet/clusters?") {
		t.Errorf("the page reads the list of Clusters:\n%s", requests)
	}
	p.checkUnharmed()
	t.Run("is accessible", func(t *testing.T) {
		axe := readAxe(t)
		p.checkAccessible("a map of tiles", axe)
		p.openAddress("/console/fleet?view=map")
		p.awaitCells("the blocks again", 4)
		p.checkAccessible("a map of blocks", axe)
	})
}

// TestThePaletteFindsSources opens an action of a Source by its name.
func TestThePaletteFindsSources(t *testing.T) {
	token := prepareTeam(t, "finds", "")
	runKubectl(t, fillTemplate(unreachableSource, "$NS", "finds"), "apply", "-f", "-")
	p := openPage(t)
	p.signIn(token)
	p.awaitText("the refusal of Clusters", "You may not list Clusters")
	p.openPalette("storefront suspend")
	p.awaitText("the action", "Action\nstorefront\nSuspend… · finds")
	p.pressKeys(kb.Enter)
	p.awaitText("the opened action", "What runs stays.", "RepositoryUnreachable")
	if got := p.evaluateScript(`location.pathname + location.search + " " + document.activeElement.innerText`); got != "/console/sources/finds/storefront?act=suspend Suspend…" {
		t.Errorf("the palette opens %s", got)
	}
	p.openPalette("storefront")
	p.awaitText("the Source", "Source\nstorefront\nfinds")
	p.run(chromedp.KeyEvent(kb.Escape))
	p.checkUnharmed()
}
