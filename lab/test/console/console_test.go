package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: $NS}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: team, namespace: $NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:application-team"}
subjects: [{kind: ServiceAccount, name: team, namespace: $NS}]
`

const admin = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $NS-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: team, namespace: $NS}]
`

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: $NAME, namespace: $NS, annotations: {atoll.dev/clusters: "*"}}
spec:
  replicas: $REPLICAS
  selector: {matchLabels: {app: $NAME}}
  template:
    metadata: {labels: {app: $NAME}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
`

func fillTemplate(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}

// prepareTeam makes a namespace with a ServiceAccount, and returns a token of it.
func prepareTeam(t *testing.T, ns, more string) string {
	t.Helper()
	if findBrowser() == "" {
		t.Skip("no chromium: apt-get install chromium")
	}
	runKubectl(t, fillTemplate(objects+"---"+more, "$NS", ns), "apply", "-f", "-")
	return runKubectl(t, "", "create", "token", "team", "-n", ns, "--duration", "1h")
}

// bundleOf returns the name of the only Bundle in a namespace, once it is there.
func bundleOf(t *testing.T, ns string) string {
	t.Helper()
	runKubectl(t, "", "wait", "deployment", "--all", "-n", ns, "--for=condition=Available", "--timeout=3m")
	return runKubectl(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[0].metadata.name}")
}

// TestTheFleetIsLive walks as an administrator: sign in, clusters, an application that becomes healthy under the
// open page, its pods, and a hub that is killed and started again.
func TestTheFleetIsLive(t *testing.T) {
	token := prepareTeam(t, "live", admin)
	p := openPage(t)
	p.awaitText("the sign-in page", "Sign in to the hub")
	p.signIn(token)
	p.awaitText("both clusters", "member1", "member2", "Ready", "AgentConnected", "agent v")
	p.openView("applications")
	p.awaitText("the list of applications", "Applications")
	runKubectl(t, fillTemplate(deployment, "$NS", "live", "$NAME", "web", "$REPLICAS", "2"), "apply", "-f", "-")
	p.awaitText("the application in the list", "web", "live", "2/2", "4/4")
	p.openView("applications", "live", bundleOf(t, "live"))
	p.awaitText("the tree", "Deployment", "member1", "member2", "Healthy", "Revision 1")
	p.run(chromedp.Click(chromedp.CSS(".node-cluster .twist")))
	p.awaitText("the pods of member1", "ReplicaSet", "Pod", "Running")
	p.run(chromedp.Click(`//div[contains(@class, "node-object")]//a[contains(@href, "/console/pods/")]`))
	p.awaitText("a pod with its Events", "Containers", "registry.example/web:1", "Successfully assigned", "kubectl describe pod -n live web-")
	p.run(chromedp.Click(chromedp.CSS(".manifest summary")))
	p.awaitText("the object of the pod", "kind: Pod", "nodeName: member1")
	p.openView("applications", "live", bundleOf(t, "live"))
	p.awaitText("the tree again", "Deployment", "member1", "Healthy", "Logs of all pods")
	p.run(chromedp.Click(chromedp.CSS(".node-cluster .twist")))
	p.run(chromedp.Click(`//section[@id="placement"]//button[text()="Explain"]`))
	p.awaitText("why it runs where it does", "Read again", "is in 2 clusters and ready", "Chosen", "Fits")
	p.run(chromedp.Click(`//section[@id="manifests"]//button[text()="Render"]`))
	p.awaitText("what the clusters get", "member1, member2", "kind: Deployment", "image: registry.example/web:1")
	runKubectl(t, fillTemplate(deployment, "$NS", "live", "$NAME", "web", "$REPLICAS", "3"), "apply", "-f", "-")
	p.awaitText("the change in the tree", "6/6 Replicas", "3/3", "Revision 2")

	if err := world.lab.KillComponent(t.Context(), "hub"); err != nil {
		t.Fatal(err)
	}
	p.awaitText("the lost contact", "No contact to the hub")
	if err := world.lab.StartComponent(t.Context(), "hub"); err != nil {
		t.Fatal(err)
	}
	runKubectl(t, fillTemplate(deployment, "$NS", "live", "$NAME", "web", "$REPLICAS", "4"), "apply", "-f", "-")
	p.awaitText("the change after the restart", "8/8 Replicas", "4/4", "Revision 3", "Live")
	p.checkUnharmed()

	p.run(chromedp.Click(`//button[text()="Sign out"]`))
	p.awaitText("the sign-in page again", "Sign in to the hub")
}

// TestATenantSeesItsOwn: a team without rights on Clusters and on other namespaces gets its own application, and
// the API's refusals for the rest.
func TestATenantSeesItsOwn(t *testing.T) {
	token := prepareTeam(t, "ours", "")
	prepareTeam(t, "theirs", "")
	for _, ns := range []string{"ours", "theirs"} {
		runKubectl(t, fillTemplate(deployment, "$NS", ns, "$NAME", ns+"-app", "$REPLICAS", "1"), "apply", "-f", "-")
	}
	own, other := bundleOf(t, "ours"), bundleOf(t, "theirs")
	p := openPage(t)
	p.awaitText("the sign-in page", "Sign in to the hub")
	p.pasteToken("forged." + token)
	p.awaitText("the refusal of a forged token", "does not accept this token")
	p.signIn(token)
	p.awaitText("the refusal of Clusters", "You may not list Clusters", "forbidden")
	p.openView("applications")
	p.awaitText("the own application", "ours-app", "1 object")
	if text := p.readText(); strings.Contains(text, "theirs") {
		t.Errorf("the list has another tenant's application:\n%s", text)
	}
	p.openView("applications", "ours", own)
	p.awaitText("the own tree", "Deployment", "member1", "member2", "Healthy")
	p.openView("applications", "theirs", other)
	p.awaitText("the refusal of another tenant's application", "You may not see this", "forbidden")
	for path, want := range map[string]string{
		"/console/api/atoll/v1alpha1/tree?namespace=ours&name=" + own:     "200",
		"/console/api/atoll/v1alpha1/tree?namespace=theirs&name=" + other: "403",
		"/console/api/atoll/v1alpha1/tree?namespace=theirs&name=none":     "403",
		"/console/api/atoll/v1alpha1/fleet/counts?by=region":              "403",
		"/console/api/atoll/v1alpha1/fleet/clusters":                      "403",
		"/console/api/atoll/v1alpha1/fleet/sources":                       "403",
		"/console/api/atoll/v1alpha1/fleet/sources?namespace=theirs":      "403",
		"/console/api/atoll/v1alpha1/fleet/sources?namespace=ours":        "200",
		"/console/api/atoll/v1alpha1/fleet/search?q=app":                  "403",
		"/console/api/atoll/v1alpha1/fleet/search?q=app&namespace=theirs": "403",
		"/console/api/atoll/v1alpha1/fleet/search?q=app&namespace=ours":   "200",
		"/console/api/apis/engine.atoll.dev/v1alpha1/targetslices":        "403",
		"/console/api/api/v1/namespaces/kube-system/secrets":              "403",
		"/console/api/metrics": "403",
	} {
		got := p.evaluateScript(fmt.Sprintf(`fetch(%q, {headers: {"X-Atoll-Console": "1"}}).then((r) => String(r.status))`, path))
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := p.evaluateScript(`document.cookie`); got != "" {
		t.Errorf("the page's script reads the cookie: %q", got)
	}
	p.checkUnharmed()
}

// TestHostileTextsDoNoHarm shows objects whose names and texts are markup, and change the direction of writing.
func TestHostileTextsDoNoHarm(t *testing.T) {
	token := prepareTeam(t, "hostile", admin)
	const markup = `<img src=x onerror=window.harmed=1>`
	runKubectl(t, fillTemplate(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "`+markup+`\u202Egnp", namespace: hostile, annotations: {atoll.dev/clusters: "*"}}
rules: []
---
apiVersion: v1
kind: Event
metadata: {name: hostile, namespace: default}
type: Warning
reason: "<b>bold</b>"
message: "<script>window.harmed=1</script>\u202Egnp \u0007`+markup+`"
involvedObject: {apiVersion: atoll.dev/v1alpha1, kind: Cluster, name: member1}
`), "apply", "-f", "-")
	p := openPage(t)
	p.signIn(token)
	p.openAddress("/console/applications?q=ns:hostile")
	p.awaitText("the hostile application alone", markup, `\u202egnp`, "1 of ")
	p.run(chromedp.Click(chromedp.CSS(".tr .name")))
	p.awaitText("its tree", "Role", markup+`\u202egnp`, "member1", "Healthy")
	p.clickButton("change", "Edit")
	p.run(chromedp.WaitVisible(chromedp.CSS("#change .yaml")))
	if text := p.evaluateScript(`document.querySelector("#change .yaml").value`); !strings.Contains(text, markup+`\u202e`) || strings.Contains(text, "\u202e") {
		t.Errorf("the text to edit is\n%s", text)
	}
	p.openView("clusters", "member1")
	p.clickButton("drain", "Drain the cluster…")
	p.clickButton("drain", "Plan")
	p.run(chromedp.WaitVisible(chromedp.CSS("#drain .plan")))
	p.awaitText("the hostile event", "<b>bold</b>", "<script>window.harmed=1</script>", `\u202egnp`, `\u0007`)
	p.openView("clusters", markup)
	p.awaitText("a cluster that does not exist", "does not exist")
	p.openView("fleet")
	p.openAddress("/console/fleet?q=" + url.QueryEscape(markup))
	p.awaitText("no cluster for the filter", "Nothing matches the filter")
	if images := p.evaluateScript(`String(document.querySelectorAll("img, script:not([src])").length)`); images != "0" {
		t.Errorf("%s elements are made of text", images)
	}
	p.checkUnharmed()
}
