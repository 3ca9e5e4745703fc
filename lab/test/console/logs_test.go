package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"atoll.dev/atoll/internal/testwait"
)

const loggedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member2"}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {nodeName: node-1, containers: [{name: web, image: "registry.example/web:1"}, {name: side, image: "registry.example/side:1"}]}
`

const logReader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: $NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: $NS}
rules:
- {apiGroups: [atoll.dev], resources: [bundles], verbs: [get, list, watch]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: $NS}]
`

// fakeKubelet serves logs and shells, as the kubelets do that the lab's nodes do not have. Each container has lines at first, and more
// by writeMore.
type fakeKubelet struct {
	*httptest.Server
	shell fakeShell
	open  atomic.Int64

	mu   sync.Mutex
	more chan struct{} // closed when the next lines come
	// order counts the pods: the first one has even seconds.
	order map[string]int
	tails []string
}

const hostileLine = "<img src=x onerror=window.harmed=1>\u202egnp \x1b]0;title\a\x1b[2J"

func newFakeKubelet(t *testing.T) *fakeKubelet {
	t.Helper()
	k := &fakeKubelet{more: make(chan struct{}), order: map[string]int{}}
	routes := http.NewServeMux()
	routes.HandleFunc("/exec/", k.shell.serve)
	routes.HandleFunc("/", k.serveLog)
	k.Server = httptest.NewTLSServer(routes)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

func (k *fakeKubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/containerLogs/"), "/")
	if len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	k.open.Add(1)
	defer k.open.Add(-1)
	k.mu.Lock()
	if _, known := k.order[parts[1]]; !known {
		k.order[parts[1]] = len(k.order)
	}
	n, more := k.order[parts[1]], k.more
	k.tails = append(k.tails, r.URL.Query().Get("tailLines"))
	k.mu.Unlock()
	if r.URL.Query().Get("sinceTime") == "" {
		for i := range 3 {
			fmt.Fprintf(w, "2026-11-29T12:00:0%d.000000000Z %s line %d of pod %d\n", 2*i+n, parts[2], i, n)
		}
		fmt.Fprintf(w, "2026-11-29T12:00:07.%d00000000Z %s\n", n, hostileLine)
		fmt.Fprintf(w, "2026-11-29T12:00:08.%d00000000Z long %s end\n", n, strings.Repeat("x", 10<<20))
	}
	_ = http.NewResponseController(w).Flush()
	for second := 10; ; second++ {
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "2026-11-29T12:00:%d.%d00000000Z later %d of pod %d\n", second, n, second-10, n)
		_ = http.NewResponseController(w).Flush()
		k.mu.Lock()
		more = k.more
		k.mu.Unlock()
	}
}

// writeMore lets each open log have another line.
func (k *fakeKubelet) writeMore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.more)
	k.more = make(chan struct{})
}

// serveNodes makes the kubelet that of the first node of each member.
func (k *fakeKubelet) serveNodes(t *testing.T) {
	t.Helper()
	port := k.Listener.Addr().String()[strings.LastIndexByte(k.Listener.Addr().String(), ':')+1:]
	for _, member := range []string{"member1", "member2"} {
		runKubectlAt(t, world.lab.KubeconfigPath(member), "", "patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":`+port+`}}}}`)
	}
}

// awaitOpenLogs waits until so many logs are read.
func (k *fakeKubelet) awaitOpenLogs(t *testing.T, n int64) {
	t.Helper()
	testwait.UntilNil(t, fmt.Sprintf("%d logs are read", n), func(context.Context) error {
		if open := k.open.Load(); open != n {
			return fmt.Errorf("it is %d", open)
		}
		return nil
	})
}

// readLines returns the texts of the log lines that are on screen, in their order, each at most 40 characters.
func (p *page) readLines() string {
	p.t.Helper()
	return p.evaluateScript(`[...document.querySelectorAll(".log-line")].sort((a, b) => a.getAttribute("aria-posinset") - b.getAttribute("aria-posinset")).map((l) => l.querySelector(".log-text").textContent.slice(0, 40)).join("\n")`)
}

func (p *page) awaitLines(what, want string) {
	p.t.Helper()
	testwait.UntilNil(p.t, what, func(context.Context) error {
		if got := p.readLines(); got != want {
			return errors.New(got + "\n\n" + p.readText())
		}
		return nil
	})
}

func (p *page) searchLines(text string) {
	p.t.Helper()
	p.evaluateScript(fmt.Sprintf(`{ const box = document.querySelector("#logs #filter"); box.value = %q; box.dispatchEvent(new Event("input", {bubbles: true})); } ""`, text))
}

// TestLogsOfManyClusters reads the logs of an application in two clusters: merged by their times, live, searched, paused, saved,
// and without harm by what they contain. The streams end with the view.
func TestLogsOfManyClusters(t *testing.T) {
	token := prepareTeam(t, "logs", "")
	runKubectl(t, fillTemplate(loggedDeployment+"---"+logReader, "$NS", "logs"), "apply", "-f", "-")
	bundle := bundleOf(t, "logs")
	kubelet := newFakeKubelet(t)
	kubelet.serveNodes(t)
	p := openPage(t)
	p.signIn(token)
	p.openView("applications", "logs", bundle)
	p.run(chromedp.WaitVisible(chromedp.CSS("header a.log-link")))
	p.run(chromedp.Click(chromedp.CSS("header a.log-link")))
	kubelet.awaitOpenLogs(t, 2)
	p.awaitText("both pods by name, and the commands", "member1/web-", "member2/web-", "kubectl logs -f -n logs -l app=web --prefix", "atoll logs -f deployment/web -n logs --tail 100")
	const shownHostile = `<img src=x onerror=window.harmed=1>\u202egnp`
	first := []string{"web line 0 of pod 0", "web line 0 of pod 1", "web line 1 of pod 0", "web line 1 of pod 1", "web line 2 of pod 0", "web line 2 of pod 1"}
	hostile := []string{shownHostile[:40], shownHostile[:40], "long " + strings.Repeat("x", 35), "long " + strings.Repeat("x", 35)}
	all := strings.Join(append(first, hostile...), "\n")
	p.awaitLines("the lines by their times", all)
	if names := p.evaluateScript(`String(new Set([...document.querySelectorAll(".log-line .log-source")].map((s) => s.textContent + s.className)).size)`); names != "2" {
		t.Errorf("%s pods have a name and a colour of their own", names)
	}
	if drawn := p.evaluateScript(`String(Math.max(...[...document.querySelectorAll(".log-text")].map((l) => l.textContent.length)))`); drawn != "1000" {
		t.Errorf("a row has %s characters", drawn)
	}
	p.searchLines("LINE 2")
	p.awaitLines("the lines that were searched", "web line 2 of pod 0\nweb line 2 of pod 1")
	if marked := p.evaluateScript(`document.querySelector(".log-line mark").textContent`); marked != "line 2" {
		t.Errorf("marked is %q", marked)
	}
	p.searchLines("long")
	p.run(chromedp.Click(chromedp.CSS(".log-line")))
	p.awaitText("the whole line, as far as it is kept", " … (+10469416)")
	p.searchLines("")

	p.clickButton("logs", "Pause")
	kubelet.writeMore()
	p.awaitText("the count of what has come", "Paused. 2 lines have come since.")
	p.awaitLines("what was there at the pause", all)
	p.clickButton("logs", "Go on")
	all += "\nlater 0 of pod 0\nlater 0 of pod 1"
	p.awaitLines("what has come", all)
	kubelet.writeMore()
	all += "\nlater 1 of pod 0\nlater 1 of pod 1"
	p.awaitLines("the live lines", all)

	p.evaluateScript(`window.saved = ""; URL.createObjectURL = (b) => (b.text().then((text) => (window.saved = text)), "blob:x"); HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download }; ""`)
	p.clickButton("logs", "Download")
	testwait.UntilNil(t, "the file", func(context.Context) error {
		saved := p.evaluateScript(`window.saved`)
		if !strings.Contains(saved, "2026-11-29T12:00:00.000000000Z [member") || !strings.Contains(saved, `\u001b]0;title\u0007\u001b[2J`) || strings.ContainsAny(saved, "\x1b\u202e") || strings.Count(saved, "\n") != 14 {
			return fmt.Errorf("%d bytes: %.300q", len(saved), saved)
		}
		return nil
	})
	if name := p.evaluateScript(`window.savedAs`); name != "logs-"+bundle+".log" {
		t.Errorf("the file is %s", name)
	}
	p.checkUnharmed()

	p.openAddress("/console/logs/logs/Deployment/web?container=*&tail=500&cluster=member1")
	p.awaitText("one cluster, both containers", " side", " web", "--all-containers --tail 500")
	kubelet.awaitOpenLogs(t, 2)
	p.openView("waiting")
	kubelet.awaitOpenLogs(t, 0)
	p.checkUnharmed()
}

// TestLogsNeedTheirRight: a person without the right to logs sees which right is missing, and reads nothing.
func TestLogsNeedTheirRight(t *testing.T) {
	prepareTeam(t, "nologs", "")
	runKubectl(t, fillTemplate(loggedDeployment+"---"+logReader, "$NS", "nologs"), "apply", "-f", "-")
	token := runKubectl(t, "", "create", "token", "reader", "-n", "nologs", "--duration", "1h")
	bundle := bundleOf(t, "nologs")
	p := openPage(t)
	p.signIn(token)
	p.openView("applications", "nologs", bundle)
	testwait.UntilNil(t, "the button names the right", func(context.Context) error {
		got := p.evaluateScript(`{ const b = document.querySelector("header button.ghost:disabled"); b ? b.innerText + ": " + b.title : document.body.innerText }`)
		if got != "Logs of all pods: You lack the right: get pods/log in nologs" {
			return errors.New(got)
		}
		return nil
	})
	p.openView("logs", "nologs", "Deployment", "web")
	p.awaitText("the view names it, too", "You lack the right: get pods/log in nologs")
	p.checkUnharmed()
}
