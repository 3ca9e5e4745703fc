package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

const preciousApp = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {app: web}}}]
  itemRules: [{resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: precious}], removal: Confirm}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: precious, namespace: $NS, labels: {app: web}}
data: {colour: blue}
`

const gatedApp = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  rollout:
    type: Staged
    stages:
    - name: canary
      clusters: {names: [member1]}
      gatesAfter: [{name: owner, approval: {}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS}
data: {colour: blue}
`

const lead = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: lead, namespace: $NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lead, namespace: $NS}
rules: [{apiGroups: [atoll.dev], resources: [bundles], verbs: [get, list, watch, patch, approve]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lead, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lead}
subjects: [{kind: ServiceAccount, name: lead, namespace: $NS}]
`

const frozenHub = `
apiVersion: atoll.dev/v1alpha1
kind: HubSettings
metadata: {name: hub}
spec: {freeze: {reason: an outage <b>at night</b>}}
`

// readColours returns the value of a ConfigMap in each member; "gone" where it is not there.
func readColours(ctx context.Context, ns, name string) (string, error) {
	var out []string
	for _, member := range []string{"member1", "member2"} {
		command := filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab")
		cmd := exec.CommandContext(ctx, command, "kubectl", "--kubeconfig", world.lab.KubeconfigPath(member), "get", "configmap", name, "-n", ns, "-o", "jsonpath={.data.colour}")
		text, err := cmd.CombinedOutput()
		colour := strings.TrimSpace(string(text))
		if err != nil && !strings.Contains(colour, "NotFound") {
			return "", fmt.Errorf("%s: %w: %s", member, err, text)
		}
		if err != nil {
			colour = "gone"
		}
		out = append(out, colour)
	}
	return strings.Join(out, " "), nil
}

// awaitColours waits until the members have these values of a ConfigMap.
func awaitColours(t *testing.T, ns, name, want string) {
	t.Helper()
	testwait.UntilNil(t, name+" is "+want, func(ctx context.Context) error {
		got, err := readColours(ctx, ns, name)
		if err == nil && got != want {
			err = errors.New("it is " + got)
		}
		return err
	})
}

// clickButton presses the enabled button whose text begins so, in the section with the id; empty: on the page. It waits for the
// button.
func (p *page) clickButton(section, text string) {
	p.t.Helper()
	script := fmt.Sprintf(`{
		const within = %[1]q ? document.getElementById(%[1]q) : document;
		const button = [...(within?.querySelectorAll("button") ?? [])].find((b) => b.innerText.startsWith(%[2]q) && !b.disabled);
		button?.click();
		button ? "" : (within?.innerText ?? "no section; " + document.body.innerText) }`, section, text)
	testwait.UntilNil(p.t, "the button "+text, func(context.Context) error {
		if shown := p.evaluateScript(script); shown != "" {
			return errors.New(shown)
		}
		return nil
	})
}

// isApplyEnabled reports whether the button that applies an edit works.
func (p *page) isApplyEnabled() bool {
	p.t.Helper()
	return p.evaluateScript(`String(!document.querySelector("#change .primary").disabled)`) == "true"
}

// chooseClusters writes the clusters that the policy names into their field.
func (p *page) chooseClusters(names string) {
	p.t.Helper()
	p.evaluateScript(fmt.Sprintf(`{ const box = document.querySelector("#change .forms input"); box.focus(); box.value = %q; box.dispatchEvent(new Event("input", {bubbles: true})); } ""`, names))
	p.evaluateScript(`document.querySelector("#change .forms input").blur() ?? ""`)
	testwait.UntilNil(p.t, "the clusters are in the text", func(context.Context) error {
		got := p.evaluateScript(`document.querySelector("#change .yaml").value`)
		if want := "clusterNames:\n        - " + names + "\n"; !strings.Contains(got, want) {
			return errors.New(got)
		}
		return nil
	})
}

// TestAnEditIsPlannedAndARemovalConfirmed walks as a team: a policy is edited with its plan, and the removal that its object
// holds is confirmed after its content is shown.
func TestAnEditIsPlannedAndARemovalConfirmed(t *testing.T) {
	token := prepareTeam(t, "edits", "")
	runKubectl(t, fillTemplate(preciousApp, "$NS", "edits"), "apply", "-f", "-")
	awaitColours(t, "edits", "precious", "blue blue")
	p := openPage(t)
	p.signIn(token)
	p.openView("applications", "edits", "web")
	p.clickButton("change", "Edit")
	p.run(chromedp.WaitVisible(chromedp.CSS("#change .yaml")))
	p.chooseClusters("member1")
	if p.isApplyEnabled() {
		t.Error("an edit can be applied without a plan")
	}
	p.clickButton("change", "Plan")
	p.awaitText("the plan", "member2", "1 removals would wait for a confirmation")
	p.chooseClusters("member2")
	if p.isApplyEnabled() {
		t.Error("an edit can be applied by the plan of another edit")
	}

	p.chooseClusters("member1")
	p.clickButton("change", "Plan")
	p.awaitText("the plan again", "1 removals would wait for a confirmation")
	runKubectl(t, "", "label", "propagationpolicy", "web", "-n", "edits", "touched=yes")
	p.clickButton("change", "Apply")
	p.awaitText("the refusal of a policy that changed since", "The object has changed since it was read")
	p.clickButton("change", "Read again, without my changes")
	testwait.UntilNil(t, "the text is the present policy", func(context.Context) error {
		if text := p.evaluateScript(`document.querySelector("#change .yaml").value`); !strings.Contains(text, "touched") || !strings.Contains(text, "member2") {
			return errors.New(text)
		}
		return nil
	})
	p.chooseClusters("member1")
	p.clickButton("change", "Plan")
	p.awaitText("the plan of the present policy", "1 removals would wait for a confirmation")
	p.clickButton("change", "Apply")
	p.awaitText("the edit is applied", "Applied.")
	if got := runKubectl(t, "", "get", "propagationpolicy", "web", "-n", "edits", "-o", "jsonpath={.spec.placement.clusterAffinity.clusterNames}"); got != `["member1"]` {
		t.Errorf("the policy names %s", got)
	}

	p.openView("waiting")
	p.awaitText("the removal waits", "web", "WaitsForConfirmation", "Show what waits")
	p.clickButton("", "Show what waits")
	p.awaitText("the content of the plan", "A removal in 1 clusters, as plan", "RemovalHeld", "member2", "Confirm plan")
	if got, err := readColours(t.Context(), "edits", "precious"); err != nil || got != "blue blue" {
		t.Errorf("before the confirmation, precious is %s (%v)", got, err)
	}
	p.clickButton("", "Confirm plan")
	awaitColours(t, "edits", "precious", "blue gone")
	p.awaitText("nothing waits any more", "Nothing waits for a person.")
	p.openView("applications", "edits", "web")
	p.clickButton("history", "Show changes")
	p.awaitText("the changes of people", "system:serviceaccount:edits:team", "/spec/placement/clusterAffinity/clusterNames", "atoll undo propagationpolicies.atoll.dev/web -n edits --revision")
	p.clickButton("history", "Undo")
	p.awaitText("the fields of the undo", `/spec/placement/clusterAffinity/clusterNames: ["member1"] → ["member1","member2"]`)
	if enabled := p.evaluateScript(`String(!document.querySelector("#history .primary").disabled)`); enabled != "false" {
		t.Error("an undo can be applied without a plan")
	}
	p.clickButton("history", "Plan")
	p.awaitText("the plan of the undo", "comes to 1 clusters: member2")
	p.clickButton("history", "Apply")
	awaitColours(t, "edits", "precious", "blue blue")
	p.checkUnharmed()
}

// TestAFreezeIsShownAndLifted: a freeze is on each open page, and the person with the right lifts it there.
func TestAFreezeIsShownAndLifted(t *testing.T) {
	token := prepareTeam(t, "freeze", admin)
	p := openPage(t)
	p.signIn(token)
	p.openView("waiting")
	runKubectl(t, frozenHub, "apply", "-f", "-")
	defer runKubectl(t, "", "patch", "hubsettings", "hub", "--type=merge", "-p", `{"spec":{"freeze":null}}`)
	p.awaitText("the freeze is on an open page", "All changes are frozen:", "an outage <b>at night</b>", "until a person lifts the freeze", "atoll unfreeze")
	p.openView("fleet")
	p.awaitText("the freeze is on another page", "All changes are frozen:", "member1")
	p.clickButton("freeze", "Lift the freeze…")
	p.awaitText("what lifting does", "Changes that wait start at once")
	p.clickButton("freeze", "Lift this freeze")
	testwait.UntilNil(t, "the freeze is gone from the page", func(context.Context) error {
		if text := p.readText(); strings.Contains(text, "All changes are frozen") {
			return errors.New(text)
		}
		return nil
	})
	if got := runKubectl(t, "", "get", "hubsettings", "hub", "-o", "jsonpath={.spec.freeze}"); got != "" {
		t.Errorf("the settings have the freeze %s", got)
	}
	p.checkUnharmed()
}

// TestASecondPersonApproves: a team without the right sees its gate and a disabled button that says why, and another person
// approves on a page of its own.
func TestASecondPersonApproves(t *testing.T) {
	token := prepareTeam(t, "gates", "")
	runKubectl(t, fillTemplate(lead, "$NS", "gates"), "apply", "-f", "-")
	leadToken := runKubectl(t, "", "create", "token", "lead", "-n", "gates", "--duration", "1h")
	runKubectl(t, fillTemplate(gatedApp, "$NS", "gates"), "apply", "-f", "-")
	awaitColours(t, "gates", "web", "blue gone")

	team := openPage(t)
	team.signIn(token)
	team.openView("waiting")
	team.awaitText("the gate waits, and the team may not open it", "WaitsForApproval", "Approve canary", "You lack the right: approve bundles.atoll.dev in gates", "atoll rollout approve bundle/web -n gates --stage canary")
	if got := team.evaluateScript(`String([...document.querySelectorAll("button")].find((b) => b.innerText === "Approve canary").disabled)`); got != "true" {
		t.Error("the button of the team is enabled")
	}
	if got, err := readColours(t.Context(), "gates", "web"); err != nil || got != "blue gone" {
		t.Errorf("at the gate, web is %s (%v)", got, err)
	}

	other := openPage(t)
	other.signIn(leadToken)
	other.openView("waiting")
	other.clickButton("", "Approve canary")
	other.awaitText("what is approved", "for the stage canary")
	other.clickButton("", "Approve the stage canary")
	awaitColours(t, "gates", "web", "blue blue")
	team.awaitText("the team's page is live", "Nothing waits for a person.")
	if got := runKubectl(t, "", "get", "bundle", "web", "-n", "gates", "-o", "jsonpath={.spec.approvals[*].by}"); got != "system:serviceaccount:gates:lead" {
		t.Errorf("approved by %q", got)
	}
	team.checkUnharmed()
	other.checkUnharmed()
}
