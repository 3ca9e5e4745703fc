package console

import (
	"context"
	"errors"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const unreachableSource = `
apiVersion: atoll.dev/v1alpha1
kind: Repository
metadata: {name: charts, namespace: $NS}
spec: {git: {url: "https://git.example.invalid/shop.git"}}
---
apiVersion: atoll.dev/v1alpha1
kind: Source
metadata: {name: storefront, namespace: $NS}
spec: {repository: charts, ref: {branch: release}, paths: [deploy]}
`

// readSuspension returns whether the Source is suspended on the hub.
func readSuspension(t *testing.T, ns string) string {
	t.Helper()
	return runKubectl(t, "", "get", "source", "storefront", "-n", ns, "-o", "jsonpath={.spec.suspend}")
}

// TestSourcesAreShownAndSuspended: a team sees why its Source is not applied, suspends it and lets it go on.
func TestSourcesAreShownAndSuspended(t *testing.T) {
	token := prepareTeam(t, "follows", "")
	runKubectl(t, fillTemplate(unreachableSource, "$NS", "follows"), "apply", "-f", "-")
	p := openPage(t)
	p.signIn(token)
	p.openView("sources")
	p.awaitText("the list of Sources", "Sources", "storefront", "charts", "Not applied", "RepositoryUnreachable")
	p.openView("sources", "follows", "storefront")
	p.awaitText("the Source", "https://git.example.invalid/shop.git", "release", "deploy", "Rendered", "what runs stays", "Changes on the hub", "are reported", "atoll source diff storefront -n follows --local DIR")
	p.clickButton("actions", "Suspend…")
	p.awaitText("what the suspension does", "What runs stays.", "atoll source suspend storefront -n follows")
	p.clickButton("actions", "Suspend the Source")
	testwait.UntilNil(t, "the Source is suspended", func(context.Context) error {
		if got := readSuspension(t, "follows"); got != "true" {
			return errors.New("suspend is " + got)
		}
		return nil
	})
	p.awaitText("the suspension is on the page", "Suspended", "Resume…")
	p.clickButton("actions", "Resume…")
	p.clickButton("actions", "Resume the Source")
	p.awaitText("the Source goes on", "Not applied", "Sync…")
	if got := readSuspension(t, "follows"); got != "" && got != "false" {
		t.Errorf("suspend is %s", got)
	}
	p.checkUnharmed()
}
